"""The campaign: all trainings on real data that claims rest on, and their committed records."""
