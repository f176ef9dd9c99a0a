"""One call, one verdict: how far back a network learns, and what sets the limit."""

from gradprop.diagnosis import page as page  # on import it registers how a diagnosis is drawn
