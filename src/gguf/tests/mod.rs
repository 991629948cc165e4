//! Tests of the container: one for each class of malformed file, and whole files.

mod real;
