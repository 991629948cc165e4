//! Argmax and the sampler chain.
