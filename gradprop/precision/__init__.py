"""Float formats, and what plain products do in them."""
