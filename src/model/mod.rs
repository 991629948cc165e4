//! What a model is: hyper-parameters, per-layer route fields and bound tensors.
