//! The graph: a model as data, its JSON form and its type-checker.
