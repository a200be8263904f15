//! What a model gets for its calls.
