# %% [markdown] key="title"
# # One transformer block
#
# Work through these beside the page. Every answer is checked on its own.

# %% [markdown] key="transformer_block.rms_norm-task" role="task"
# ## RMSNorm
#
# Divide each row of `x` by the root of its mean square, then scale it by `weight`.

# %% key="transformer_block.rms_norm" role="answer"
# answer: transformer_block.rms_norm
def rms_norm(x, weight, eps):
    """x: [..., hidden], weight: [hidden] -> [..., hidden], in x.dtype."""
    ### BEGIN SOLUTION
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return normed.to(x.dtype) * weight
    ### END SOLUTION
