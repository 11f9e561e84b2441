"""Bugs of logic in networks, distributions and normalisers."""

from __future__ import annotations

from mutations.bug import of

MODELS = [
    *of(
        "models/distributions.py",
        "test_distributions.py",
        ("logits.masked_fill(~mask, -torch.inf)", "logits", "masks are ignored"),
        (
            "return -(self.log.exp() * self._finite(self.log)).sum(-1)",
            "return (self.log.exp() * self._finite(self.log)).sum(-1)",
            "the entropy has the wrong sign",
        ),
        (
            "self._finite(old.log) - self._finite(self.log)",
            "self._finite(self.log) - self._finite(old.log)",
            "the KL divergence of categoricals is the other way round",
        ),
        ("return crossed - old.entropy()", "return crossed", "the KL divergence of coins lacks the entropy"),
        (
            "- self.log_std - _HALF_LOG_2PI).sum(-1)",
            "- _HALF_LOG_2PI).sum(-1)",
            "densities do not know the deviation",
        ),
        (
            "(self.log_std + 0.5 + _HALF_LOG_2PI)",
            "(self.log_std + _HALF_LOG_2PI)",
            "the entropy lacks one half",
        ),
        ("0.5 * (wider + scaled.square()) - 0.5", "0.5 * wider - 0.5", "the KL divergence ignores the means"),
        (
            "return super().log_prob(action) - slope.sum(-1)",
            "return super().log_prob(action)",
            "densities ignore squashing",
        ),
        (
            "out - np.log(rng.standard_exponential(out.shape))",
            "out + rng.standard_normal(out.shape)",
            "actions are drawn by other probabilities",
            "test_distributions.py test_ppo_update.py",
        ),
        (
            "np.where(mask, out, -np.inf)",
            "out",
            "acting ignores masks",
            "test_distributions.py test_action_masks.py",
        ),
        (
            "return (out > 0).astype(np.int8)",
            "return (out > 0.5).astype(np.int8)",
            "coins need more than one half",
        ),
        (
            "out = out + std * rng.standard_normal",
            "out = out + rng.standard_normal",
            "noise has a deviation of one",
        ),
        (
            "        return np.tanh(action)\n",
            "        return action\n",
            "actions are played as they were before squashing",
        ),
    ),
    *of(
        "models/noisy.py",
        "test_noisy.py",
        ("np.copysign(np.sqrt(np.abs(drawn)), drawn)", "drawn", "noise is not reshaped by the root"),
        ("self.bias + self.bias_sigma * outer[0]", "self.bias", "the bias is not disturbed"),
        (
            "return F.linear(x, self.weight, self.bias) + outer * disturbed",
            "return F.linear(x, self.weight, self.bias) + disturbed",
            "outputs are disturbed by half of the noise",
        ),
        (
            "torch.full((out_features, in_features), sigma * bound)",
            "torch.full((out_features, in_features), sigma)",
            "noise is too loud at first",
        ),
        ("            layer.noise = None\n", "            pass\n", "noise stays on"),
    ),
    *of(
        "models/normalizer.py",
        "test_normalizer.py",
        (" + delta**2 * self.count * count / total", "", "the distance of means is lost"),
        ("batch.var(0, correction=0)", "batch.var(0)", "batches are merged with Bessel's correction"),
        (
            "self.mean += delta * count / total",
            "self.mean += delta * 0.5",
            "the newest batch weighs one half",
        ),
        ("scaled.clamp(-self.clip, self.clip).float()", "scaled.float()", "nothing is clipped"),
        ("scaled.clip(-clip, clip).astype(np.float32)", "scaled.astype(np.float32)", "acting does not clip"),
    ),
    *of(
        "models/reward_scale.py",
        "test_ppo_update.py test_on_policy_options.py test_normalizer.py",
        (
            "before = np.where(starts[t], 0.0, running)",
            "before = running",
            "returns go on through an episode's end",
        ),
        ("before * self.gamma + reward[t]", "before + reward[t]", "returns are not discounted"),
        ("self._merge(seen[valid])", "self._merge(seen.ravel())", "rows that are no steps count"),
        (
            "reward / np.sqrt(float(self.var) + self.eps)",
            "(reward - float(self.mean)) / np.sqrt(float(self.var) + self.eps)",
            "a mean is taken off the rewards",
        ),
    ),
    *of(
        "models/batch_renorm.py",
        "test_crossq_update.py test_crossq_trainer_smoke.py",
        (
            "self.running_var.lerp_(var, self.momentum)",
            "self.running_var.lerp_(var, 1.0 - self.momentum)",
            "variances jump",
        ),
        ("return int(self.calls) >= self.warm_up", "return True", "batches are corrected from the beginning"),
        (
            ".clamp(1.0 / self.r_max, self.r_max)",
            ".clamp(max=self.r_max)",
            "corrections are bounded on one side",
        ),
        (
            "of_x.addcmul_(centred, scale * along * inverse / -rows)",
            "of_x",
            "the gradient ignores the batch's deviation",
        ),
        ("(self.bias - self.running_mean * scale)", "self.bias", "evaluation does not centre"),
    ),
    *of(
        "models/actors.py",
        "test_actor_critic_oracles.py test_sac_update.py test_actor_critic_options.py test_drqv2_update.py",
        (
            "return x + (x.clamp(low, high) - x).detach()",
            "return x.clamp(low, high)",
            "clamped actions have no gradient",
        ),
        ("(normal - slope).sum(-1)", "normal.sum(-1)", "densities ignore squashing"),
        (
            "hidden.detach().square() @ self.std().square()",
            "hidden.square() @ self.std().square()",
            "features are learned for the noise, too",
        ),
        ("noise = noise.clamp(-clip, clip)", "pass", "noise is not clipped"),
        ("matrix * self.std())", "matrix)", "noise of matrices has a deviation of one"),
    ),
    *of(
        "models/critics.py",
        "test_actor_critic_options.py test_sac_update.py test_drqv2_update.py",
        (
            "torch.stack([member(x) for member in self.members])",
            "torch.stack([self.members[0](x) for _ in self.members])",
            "all critics are the first one",
        ),
    ),
    *of(
        "models/encoders.py",
        "test_encoders.py test_image_learners.py",
        (
            "x = x / self._part.high if x is images else x.mul_(1.0 / self._part.high)",
            "pass",
            "images are not scaled",
        ),
        ("images = images.movedim(-1, -3)", "pass", "channels that come last are taken for a dimension"),
        ("return x + added", "return added", "residual blocks forget what they were given"),
        (
            "pieces.append(self.features.encode(parts))",
            "pieces.append(0.0 * self.features.encode(parts))",
            "vectors beside images are lost",
        ),
    ),
    *of(
        "models/features.py",
        "test_encoders.py test_observation_kinds.py test_mlp.py",
        ("obs = obs.float() / 255.0", "obs = obs.float()", "bytes are not scaled"),
        (
            "places = numbers + torch.from_numpy(self._begins[part.path]).to(numbers.device)",
            "places = numbers",
            "several discrete numbers share their one-hot inputs",
        ),
        (
            "raw = obs[:, part.offset : part.offset + part.nbytes].contiguous()",
            "raw = obs[:, : part.nbytes].contiguous()",
            "every part is the first one",
        ),
    ),
    *of(
        "models/mlp_iqn_q_network.py",
        "test_iqn_update.py",
        ("(torch.arange(count) + 0.5) / count", "torch.arange(count) / count", "midpoints are left ends"),
        (
            "math.pi * torch.arange(1, num_cosines + 1)",
            "math.pi * torch.arange(num_cosines)",
            "cosines begin with a constant",
        ),
    ),
    *of(
        "models/recurrent/packing.py",
        "test_recurrent_models.py test_recurrent_ppo_update.py test_compiled_lstm.py",
        (
            "np.repeat(self._starts[:-1], later) + within",
            "np.repeat(self._starts[1:], later) + within",
            "the step before is the same step",
        ),
    ),
]
