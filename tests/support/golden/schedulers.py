"""Writes learning rates of PyTorch's schedulers: two groups (0.1 and 0.03), 60 steps each, the first of which is before any step.

usage: schedulers.py OUT_FILE
{name: {"lrs": [[group 0, group 1], ..]}}, and for ReduceLROnPlateau the metrics that it was told.
"""
import json, math, sys, warnings
import torch
from torch.optim import lr_scheduler as s

warnings.filterwarnings("ignore")
STEPS = 60

def optimizer():
    params = [torch.zeros(1, requires_grad=True) for _ in range(2)]
    return torch.optim.SGD([{"params": params[:1], "lr": 0.1}, {"params": params[1:], "lr": 0.03}], lr=0.1)

def run(make, metrics=None):
    opt = optimizer(); sched = make(opt); lrs = []
    for i in range(STEPS):
        lrs.append([g["lr"] for g in opt.param_groups])
        opt.step()
        sched.step(metrics[i]) if metrics else sched.step()
    return {"lrs": lrs, **({"metrics": metrics} if metrics else {})}

def sequential(opt):
    parts = [s.LinearLR(opt, start_factor=0.1, total_iters=8), s.CosineAnnealingLR(opt, T_max=30, eta_min=1e-3), s.ExponentialLR(opt, gamma=0.9)]
    return s.SequentialLR(opt, parts, milestones=[8, 38])

falling = [math.exp(-i / 20) + 0.3 * math.sin(i * 1.7) for i in range(STEPS)]
cases = {
    "StepLR": run(lambda o: s.StepLR(o, step_size=7, gamma=0.5)),
    "MultiStepLR": run(lambda o: s.MultiStepLR(o, milestones=[5, 20, 20, 41], gamma=0.3)),
    "ConstantLR": run(lambda o: s.ConstantLR(o, factor=0.25, total_iters=9)),
    "LinearLR": run(lambda o: s.LinearLR(o)),
    "LinearLR_down": run(lambda o: s.LinearLR(o, start_factor=1.0, end_factor=0.1, total_iters=40)),
    "ExponentialLR": run(lambda o: s.ExponentialLR(o, gamma=0.93)),
    "PolynomialLR": run(lambda o: s.PolynomialLR(o, total_iters=45, power=2.0)),
    "CosineAnnealingLR": run(lambda o: s.CosineAnnealingLR(o, T_max=20, eta_min=1e-3)),
    "CosineAnnealingWarmRestarts": run(lambda o: s.CosineAnnealingWarmRestarts(o, T_0=7, T_mult=2, eta_min=1e-4)),
    "LambdaLR": run(lambda o: s.LambdaLR(o, lambda i: min(1.0, (i + 1) / 10) / math.sqrt(1 + i / 10))),
    "OneCycleLR": run(lambda o: s.OneCycleLR(o, max_lr=[0.2, 0.05], total_steps=STEPS + 1, cycle_momentum=False)),
    "OneCycleLR_linear_three": run(lambda o: s.OneCycleLR(o, max_lr=[0.2, 0.05], total_steps=STEPS + 1, pct_start=0.4, anneal_strategy="linear", div_factor=10.0, final_div_factor=100.0, three_phase=True, cycle_momentum=False)),
    "SequentialLR": run(sequential),
    "ReduceLROnPlateau": run(lambda o: s.ReduceLROnPlateau(o, factor=0.5, patience=3, cooldown=2), falling),
    "ReduceLROnPlateau_max_abs": run(lambda o: s.ReduceLROnPlateau(o, mode="max", factor=0.3, patience=2, threshold=0.05, threshold_mode="abs", min_lr=[1e-3, 2e-3], eps=1e-6), [-x for x in falling]),
}
with open(sys.argv[1], "w") as f:
    json.dump({"torch": torch.__version__, "cases": cases}, f, indent=0)
