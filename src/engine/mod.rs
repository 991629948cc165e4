//! How a model runs: generator, prefill, layer and matmul machines over the kernels.
