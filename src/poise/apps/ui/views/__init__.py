"""From runs to what a page shows: plain values and figures, reduced to what a screen can hold."""
