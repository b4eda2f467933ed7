//! Black-box tests of the real programs, one module per behaviour.

mod real;
