"""Stories: one file for each experiment, with what is run, what is claimed and what is drawn."""
