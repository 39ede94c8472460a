//! What a model family is: the trait, checkpoint description, chat format.
