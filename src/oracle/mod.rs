//! The f64 oracle: a slow forward pass that says which engine is right.
