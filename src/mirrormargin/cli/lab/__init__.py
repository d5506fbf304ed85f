"""``mirrormargin lab``: one attention layer, computed exactly; a module for each command."""
