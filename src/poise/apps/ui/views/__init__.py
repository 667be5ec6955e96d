"""From runs to pages: plain values and figures, reduced to what a screen can hold."""
