"""What goes out: gradebooks, feedback pages, JUnit, the overview."""
