"""`BatchNorm`: the batch-norm layers stay with each client (FedBN)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poise.core.errors import IncompatibleParts
from poise.core.parts import part
from poise.personal.entries import chosen_entries, refuse_on_demand

if TYPE_CHECKING:
    from torch import nn

    from poise.core.types import Setting


@part("personal", "batchnorm")
class BatchNorm:
    """Keep parameters and statistics of all batch-norm layers with each client (FedBN).

    The layers are those of type ``BatchNorm1d``, ``BatchNorm2d``, ``BatchNorm3d`` and
    ``SyncBatchNorm``. A model without such a layer raises `IncompatibleParts`.

    Source: [Li 2021].

    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(2, 3, bias=False), nn.BatchNorm1d(3))
    >>> BatchNorm().names(net)
    ('1.weight', '1.bias', '1.running_mean', '1.running_var', '1.num_batches_tracked')
    """

    def fit(self, setting: Setting) -> None:
        """Refuse populations on demand, whose clients keep nothing."""
        refuse_on_demand(self, setting)

    def names(self, module: nn.Module) -> tuple[str, ...]:
        """Return the names of all entries of batch-norm layers."""
        from torch import nn

        norms = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
        inside: set[str] = set()
        for name, layer in module.named_modules():
            if isinstance(layer, norms):
                prefix = f"{name}." if name else ""
                inside.update(layer.state_dict(prefix=prefix))
        if not inside:
            raise IncompatibleParts(
                "personal = 'batchnorm', but the model has no batch-norm layer",
                "choose a model with batch norm, or remove personal",
            )
        return chosen_entries(self, module, inside)
