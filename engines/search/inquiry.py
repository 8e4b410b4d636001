"""Where rooms that do not ask the oracle yet find the inquiry: it moves with the last of them."""

from narrowdown.engines.asking.inquiry import Inquiry as Inquiry
from narrowdown.engines.asking.inquiry import make_inquiry as make_inquiry
from narrowdown.engines.asking.inquiry import open_inquiry as open_inquiry
