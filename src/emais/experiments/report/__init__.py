"""Pages: tables, figures and the text around them."""
