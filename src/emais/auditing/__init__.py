"""`emais.audit`: a pilot that trains a few epochs, says what they were worth, and puts everything back."""
