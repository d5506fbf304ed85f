"""How do other people's libraries use it? One thin file for each library."""
