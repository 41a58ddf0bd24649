"""What the exercises of the Triton primer share."""

PAGE = "triton_primer.html"
