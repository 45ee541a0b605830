"""The product: templates in, answers out."""
