"""What is made of run folders: the page that people look at."""
