//! Chat templates: renders a conversation into the text a model was trained on.
