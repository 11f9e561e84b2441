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

/* Write the gradient by the outputs of a policy [count, actions] and by values [count], whatever made them, and the
 * facts as ppo_gradient does. log_std [actions] is that of a Gaussian, or none; x is not looked at. */
int64_t ppo_outputs(const Surrogate *by, const Samples *of, const float *log_std, int64_t actions, const float *out,
                    const float *value, float *grad, float *value_grad, float *log_std_grad, double *facts);
int64_t ppo_outputs_plain(const Surrogate *by, const Samples *of, const float *log_std, int64_t actions, const float *out,
                          const float *value, float *grad, float *value_grad, float *log_std_grad, double *facts);
int64_t ppo_outputs_avx2(const Surrogate *by, const Samples *of, const float *log_std, int64_t actions, const float *out,
                         const float *value, float *grad, float *value_grad, float *log_std_grad, double *facts);

/* Adam (Kingma & Ba 2015) with clipping by the norm of the whole gradient; vectors of `parameters` numbers each. */
typedef struct {
    int64_t parameters;
    float *flat, *grad, *exp_avg, *exp_avg_sq, *step; /* step is one number, the steps made so far */
    double lr, beta1, beta2, eps, max_grad_norm;      /* a max_grad_norm of 0 clips nothing */
} Adam;

/* Write the gradient of the mean loss, and loss, policy loss, value loss, entropy, approximate KL divergence and the
 * share of clipped ratios to facts [6]. Return -1, or the first row whose action does not exist; then nothing is
 * written. */
int64_t ppo_gradient(const ActorCritic *net, const Surrogate *by, const Samples *of, double *facts);
int64_t ppo_gradient_plain(const ActorCritic *net, const Surrogate *by, const Samples *of, double *facts);
int64_t ppo_gradient_avx2(const ActorCritic *net, const Surrogate *by, const Samples *of, double *facts);

/* Make a gradient step on each minibatch of `batch` rows: what is left over makes a smaller one, but a single row joins
 * the one before it. Stop before a step at which the KL divergence is above kl_limit, if that is not 0, or loss or
 * gradient are not finite. Add up in sums [8]: the facts of ppo_gradient and the gradient's norm of each minibatch, of
 * which the loss and the norm only where the step was made, and how many minibatches were looked at. facts [6] are those
 * of the last one. Return the number of steps made, -1 if something was not finite (then the norm is in sums[6]), or
 * -2 - row for a row whose action does not exist. */
int64_t ppo_steps(const ActorCritic *net, const Surrogate *by, Samples *of, const Adam *adam, int64_t batch,
                  double kl_limit, double *facts, double *sums);
int64_t ppo_steps_plain(const ActorCritic *net, const Surrogate *by, Samples *of, const Adam *adam, int64_t batch,
                        double kl_limit, double *facts, double *sums);
int64_t ppo_steps_avx2(const ActorCritic *net, const Surrogate *by, Samples *of, const Adam *adam, int64_t batch,
                       double kl_limit, double *facts, double *sums);

/* Write generalised advantage estimates [steps, envs]: see data/rollout_buffer.py. */
void advantages(int64_t steps, int64_t envs, const float *reward, const float *value, const float *following,
                const uint8_t *done, const uint8_t *valid, double gamma, double lambda, float *estimate);

#endif
