"""What a job would take: work counted in units, and what a unit costs on this machine."""
