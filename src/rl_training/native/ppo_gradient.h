/* What the caller in Python and the compiled code agree on; see algorithms/compiled_ppo.py. */

#ifndef PPO_GRADIENT_H
#define PPO_GRADIENT_H

#include <stdint.h>

typedef struct {
    int64_t actor_layers, critic_layers;             /* of weights */
    const int64_t *actor_sizes, *critic_sizes;       /* [layers + 1] each */
    int64_t layer_norm, tanh, gaussian;              /* 0 or 1; without gaussian, actions are categorical */
    const float *actor, *critic, *log_std;           /* parameters; log_std only of a Gaussian */
    float *actor_grad, *critic_grad, *log_std_grad;
    float *work; /* [count * (2 * outputs + 2 * widths + 3 * widest + layers + 17) + 16 * widths], count in whole eights
                  * and of the larger of both networks each */
} ActorCritic;

typedef struct {
    double clip_range, ent_coef, vf_coef, clip_range_vf;
    int64_t value_clipping;      /* 0: none, 1: prediction, 2: maximum */
    int64_t normalize_advantage; /* 0 or 1 */
} Surrogate;

/* All samples of a rollout without gaps, of which those in rows are meant. */
typedef struct {
    int64_t count;       /* of rows */
    const int64_t *rows; /* [count] */
    const float *x;      /* [samples, features] */
    const void *action;  /* [samples] int64, or [samples, outputs] float */
    const float *log_prob, *value, *advantage, *target; /* [samples] */
    const uint8_t *mask; /* [samples, outputs], or none */
} Samples;

/* Write the gradient of the mean loss, and loss, policy loss, value loss, entropy, approximate KL divergence and the
 * share of clipped ratios to facts [6]. Return -1, or the first row whose action does not exist; then nothing is
 * written. */
int64_t ppo_gradient(const ActorCritic *net, const Surrogate *by, const Samples *of, double *facts);
int64_t ppo_gradient_plain(const ActorCritic *net, const Surrogate *by, const Samples *of, double *facts);
int64_t ppo_gradient_avx2(const ActorCritic *net, const Surrogate *by, const Samples *of, double *facts);

/* Write generalised advantage estimates [steps, envs]: see data/rollout_buffer.py. */
void advantages(int64_t steps, int64_t envs, const float *reward, const float *value, const float *following,
                const uint8_t *done, const uint8_t *valid, double gamma, double lambda, float *estimate);

#endif
