/* PPO's gradient steps on two small perceptrons, of a policy and of a value; see native/perceptron.h.
 *
 * Compiled several times, for different processors, each time with another name; see native/dispatch.c.
 */

#include <math.h>

#include "perceptron.h"
#include "ppo_gradient.h"

#define HALF_LOG_2PI 0.91893853320467274
#define LOG_STD_MIN -20.0f
#define LOG_STD_MAX 2.0f

/* What one sample adds to the facts. */
typedef struct {
    double policy, value, entropy, kl, clipped;
} Sums;

/* Return the slope of the policy's loss by the log-probability of the action taken, and count what it adds. */
static double surrogate(const Surrogate *by, double log_prob, double before, double advantage, Sums *sums) {
    double moved = log_prob - before, ratio = exp(moved);
    double low = 1.0 - by->clip_range, high = 1.0 + by->clip_range;
    double bounded = ratio < low ? low : ratio > high ? high : ratio;
    double free = ratio * advantage, cut = bounded * advantage;
    sums->policy -= free <= cut || free != free ? free : cut;
    sums->kl += ratio - 1.0 - moved;
    sums->clipped += fabs(ratio - 1.0) > by->clip_range;
    return free <= cut || free != free ? -free : 0.0;
}

/* Write the gradient by a column of logits [actions, count]; return the slope by none, it is all in there. */
static void categorical(const float *out, int64_t actions, int64_t count, const Surrogate *by, const uint8_t *mask,
                        int64_t action, double before, double advantage, double share, float *grad, Sums *sums) {
    double highest = -INFINITY, total = 0.0, entropy = 0.0;
    for (int64_t a = 0; a < actions; a++)
        if ((!mask || mask[a]) && !(out[a * count] <= highest)) highest = out[a * count];
    for (int64_t a = 0; a < actions; a++)
        if (!mask || mask[a]) total += exp(out[a * count] - highest);
    double norm = highest + log(total);
    for (int64_t a = 0; a < actions; a++)
        if (!mask || mask[a]) entropy -= exp(out[a * count] - norm) * (out[a * count] - norm);
    double slope = surrogate(by, out[action * count] - norm, before, advantage, sums);
    sums->entropy += entropy;
    for (int64_t a = 0; a < actions; a++) {
        if (mask && !mask[a]) continue;
        double log_p = out[a * count] - norm, p = exp(log_p);
        grad[a * count] = (float)(share * (slope * ((a == action) - p) + by->ent_coef * p * (log_p + entropy)));
    }
}

static void gaussian(const float *out, int64_t actions, int64_t count, const Surrogate *by, const float *log_std,
                     const float *action, double before, double advantage, double share, float *grad,
                     double *std_grad, Sums *sums) {
    double log_prob = 0.0;
    for (int64_t a = 0; a < actions; a++) {
        double std = log_std[a] < LOG_STD_MIN ? LOG_STD_MIN : log_std[a] > LOG_STD_MAX ? LOG_STD_MAX : log_std[a];
        double distance = (action[a] - out[a * count]) * exp(-std);
        log_prob -= 0.5 * distance * distance + std + HALF_LOG_2PI;
        sums->entropy += std + 0.5 + HALF_LOG_2PI;
    }
    double slope = surrogate(by, log_prob, before, advantage, sums);
    for (int64_t a = 0; a < actions; a++) {
        int inside = log_std[a] >= LOG_STD_MIN && log_std[a] <= LOG_STD_MAX;
        double std = log_std[a] < LOG_STD_MIN ? LOG_STD_MIN : log_std[a] > LOG_STD_MAX ? LOG_STD_MAX : log_std[a];
        double distance = (action[a] - out[a * count]) * exp(-std);
        grad[a * count] = (float)(share * slope * distance * exp(-std));
        if (inside) std_grad[a] += share * (slope * (distance * distance - 1.0) - by->ent_coef);
    }
}

/* Return the slope of the value's loss by the value, and count what it adds. */
static double value_error(const Surrogate *by, double value, double before, double target, Sums *sums) {
    double error = value - target, loss = error * error, slope = 2.0 * error;
    if (by->value_clipping) {
        double move = value - before, limit = by->clip_range_vf;
        int outside = move < -limit || move > limit;
        double bounded = before + (move < -limit ? -limit : move > limit ? limit : move) - target;
        if (by->value_clipping == 1 || bounded * bounded > loss) {
            loss = bounded * bounded;
            slope = outside ? 0.0 : 2.0 * bounded;
        }
    }
    sums->value += loss;
    return slope;
}

/* Write the gradient by the outputs of the policy, of which those of a sample lie `between` apart and the next sample's
 * `next` further on. log_std is that of a Gaussian, or none. */
static void by_outputs(const Surrogate *by, const Samples *of, const float *log_std, int64_t actions, const float *out,
                       int64_t next, int64_t between, float *grad, float *log_std_grad, Sums *sums) {
    double mean = 0.0, factor = 1.0, share = 1.0 / (double)of->count;
    if (by->normalize_advantage && of->count > 1) {
        double squares = 0.0;
        for (int64_t j = 0; j < of->count; j++) mean += of->advantage[of->rows[j]] * share;
        for (int64_t j = 0; j < of->count; j++) {
            double off = of->advantage[of->rows[j]] - mean;
            squares += off * off;
        }
        factor = 1.0 / (sqrt(squares / (double)(of->count - 1)) + 1e-8);
    }
    double std_grad[log_std ? actions : 1]; /* a Gaussian has few dimensions, a categorical may have many actions */
    memset(std_grad, 0, sizeof(std_grad));
    for (int64_t j = 0; j < of->count; j++, out += next, grad += next) {
        int64_t row = of->rows[j];
        double advantage = (of->advantage[row] - mean) * factor, before = of->log_prob[row];
        if (log_std)
            gaussian(out, actions, between, by, log_std, (const float *)of->action + row * actions, before, advantage,
                     share, grad, std_grad, sums);
        else
            categorical(out, actions, between, by, of->mask ? of->mask + row * actions : 0,
                        ((const int64_t *)of->action)[row], before, advantage, share, grad, sums);
    }
    if (log_std)
        for (int64_t a = 0; a < actions; a++) log_std_grad[a] = (float)std_grad[a];
}

static void by_values(const Surrogate *by, const Samples *of, const float *value, float *grad, Sums *sums) {
    double share = by->vf_coef / (double)of->count;
    for (int64_t j = 0; j < of->count; j++) {
        int64_t row = of->rows[j];
        grad[j] = (float)(share * value_error(by, value[j], of->value[row], of->target[row], sums));
    }
}

/* Return the first row whose action does not exist, or -1. */
static int64_t wrong_action(const Samples *of, int64_t actions) {
    for (int64_t j = 0; j < of->count; j++) {
        int64_t action = ((const int64_t *)of->action)[of->rows[j]];
        if (action < 0 || action >= actions) return j;
    }
    return -1;
}

static void write_facts(const Surrogate *by, const Sums *sums, int64_t count, double *facts) {
    double share = 1.0 / (double)count;
    facts[1] = sums->policy * share;
    facts[2] = sums->value * share;
    facts[3] = sums->entropy * share;
    facts[4] = sums->kl * share;
    facts[5] = sums->clipped * share;
    facts[0] = facts[1] - by->ent_coef * facts[3] + by->vf_coef * facts[2];
}

int64_t OF_KIND(ppo_outputs)(const Surrogate *by, const Samples *of, const float *log_std, int64_t actions,
                             const float *out, const float *value, float *grad, float *value_grad, float *log_std_grad,
                             double *facts) {
    int64_t wrong = log_std ? -1 : wrong_action(of, actions);
    if (wrong >= 0) return wrong;
    Sums sums = {0};
    memset(grad, 0, sizeof(float) * actions * of->count); /* nothing is written for what is forbidden */
    by_outputs(by, of, log_std, actions, out, actions, 1, grad, log_std_grad, &sums);
    by_values(by, of, value, value_grad, &sums);
    write_facts(by, &sums, of->count, facts);
    return -1;
}

static void lay_out(const Samples *of, int64_t inputs, int64_t count, float *work) {
    for (int64_t i = 0; i < inputs; i++)
        for (int64_t j = 0; j < count; j++) work[i * count + j] = j < of->count ? of->x[of->rows[j] * inputs + i] : 0.0f;
}

static int64_t sum_of(const Perceptron *net) {
    int64_t sum = 0;
    for (int64_t i = 0; i <= net->layers; i++) sum += net->sizes[i];
    return sum;
}

int64_t OF_KIND(ppo_gradient)(const ActorCritic *net, const Surrogate *by, const Samples *of, double *facts) {
    Perceptron actor = {net->actor_layers, net->actor_sizes, net->layer_norm, net->tanh};
    Perceptron critic = {net->critic_layers, net->critic_sizes, net->layer_norm, net->tanh};
    int64_t given = of->count, count = (given + WIDE - 1) / WIDE * WIDE;
    int64_t inputs = actor.sizes[0], actions = actor.sizes[actor.layers];
    int64_t widths = sum_of(&actor) > sum_of(&critic) ? sum_of(&actor) : sum_of(&critic);
    int64_t layers = actor.layers > critic.layers ? actor.layers : critic.layers;
    int64_t wrong = net->gaussian ? -1 : wrong_action(of, actions);
    if (wrong >= 0) return wrong;
    float *grad = net->work, *values = grad + actions * count, *work = values + actions * count;
    float *packed = work + widths * count, *normals = packed + 2 * WIDE * (widths + count);
    float *scratch = normals + (widths + layers) * count;
    Sums sums = {0};
    lay_out(of, inputs, count, work);
    const float *out = forward(&actor, net->actor, count, work, packed, normals);
    memset(grad, 0, sizeof(float) * actions * count);
    by_outputs(by, of, net->gaussian ? net->log_std : 0, actions, out, 1, count, grad, net->log_std_grad, &sums);
    backward(&actor, net->actor, net->actor_grad, work, count, grad, scratch, packed, normals);
    out = forward(&critic, net->critic, count, work, packed, normals);
    memset(values, 0, sizeof(float) * count);
    by_values(by, of, out, values, &sums);
    backward(&critic, net->critic, net->critic_grad, work, count, values, scratch, packed, normals);
    write_facts(by, &sums, given, facts);
    return -1;
}

/* Return whether the step was made: not if loss or gradient are not finite. */
static int adam_step(const Adam *adam, double loss, double *norm) {
    double squares[WIDE] = {0}, sum = 0.0; /* side by side, so that one need not wait for the other */
    int64_t whole = adam->parameters - adam->parameters % WIDE;
    for (int64_t i = 0; i < whole; i += WIDE)
        for (int k = 0; k < WIDE; k++) squares[k] += (double)adam->grad[i + k] * adam->grad[i + k];
    for (int64_t i = whole; i < adam->parameters; i++) squares[i - whole] += (double)adam->grad[i] * adam->grad[i];
    for (int k = 0; k < WIDE; k++) sum += squares[k];
    *norm = sqrt(sum);
    if (!isfinite(loss + *norm)) return 0;
    double made = *adam->step += 1.0f;
    float size = adam->lr / (1.0 - pow(adam->beta1, made)), root = sqrt(1.0 - pow(adam->beta2, made));
    float scale = adam->max_grad_norm > 0.0 && *norm > adam->max_grad_norm ? adam->max_grad_norm / (*norm + 1e-6) : 1.0;
    float first = 1.0 - adam->beta1, second = 1.0 - adam->beta2, keep = adam->beta2, eps = adam->eps;
    float *restrict flat = adam->flat, *restrict mean = adam->exp_avg, *restrict square = adam->exp_avg_sq;
    const float *restrict grad = adam->grad;
    for (int64_t i = 0; i < adam->parameters; i++) {
        float slope = grad[i] * scale;
        mean[i] += first * (slope - mean[i]);
        square[i] = keep * square[i] + second * slope * slope;
        flat[i] -= size * mean[i] / (__builtin_sqrtf(square[i]) / root + eps);
    }
    return 1;
}

int64_t OF_KIND(ppo_steps)(const ActorCritic *net, const Surrogate *by, Samples *of, const Adam *adam, int64_t batch,
                           double kl_limit, double *facts, double *sums) {
    const int64_t *order = of->rows;
    int64_t total = of->count, steps = 0;
    for (int64_t start = 0; start < total; start += of->count) {
        int64_t left = total - start;
        of->rows = order + start;
        of->count = left < batch || left - batch == 1 ? left : batch;
        int64_t wrong = OF_KIND(ppo_gradient)(net, by, of, facts);
        if (wrong >= 0) return -2 - of->rows[wrong];
        sums[7] += 1.0;
        for (int i = 1; i < 6; i++) sums[i] += facts[i];
        if (kl_limit > 0.0 && facts[4] > kl_limit) break;
        double norm;
        if (!adam_step(adam, facts[0], &norm)) {
            sums[6] = norm;
            return -1;
        }
        sums[0] += facts[0];
        sums[6] += norm;
        steps++;
    }
    return steps;
}
