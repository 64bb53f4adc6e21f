"""Does a trial's cycle take as long as plain TRL's? Cycle by cycle in turns."""
