"""How a max-margin program is solved: primal-dual interior points and what proves their answers."""
