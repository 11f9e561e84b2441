/* The gradient of PPO's loss through two small perceptrons, of a policy and of a value; see native/perceptron.h.
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

static void lay_out(const Samples *of, int64_t inputs, int64_t count, float *work) {
    for (int64_t i = 0; i < inputs; i++)
        for (int64_t j = 0; j < count; j++) work[i * count + j] = j < of->count ? of->x[of->rows[j] * inputs + i] : 0.0f;
}

static int64_t sum_of(const Perceptron *net) {
    int64_t sum = 0;
    for (int64_t i = 0; i <= net->layers; i++) sum += net->sizes[i];
    return sum;
}

int64_t PPO_GRADIENT(const ActorCritic *net, const Surrogate *by, const Samples *of, double *facts) {
    Perceptron actor = {net->actor_layers, net->actor_sizes, net->layer_norm, net->tanh};
    Perceptron critic = {net->critic_layers, net->critic_sizes, net->layer_norm, net->tanh};
    int64_t given = of->count, count = (given + WIDE - 1) / WIDE * WIDE;
    int64_t inputs = actor.sizes[0], actions = actor.sizes[actor.layers];
    int64_t widths = sum_of(&actor) > sum_of(&critic) ? sum_of(&actor) : sum_of(&critic);
    int64_t layers = actor.layers > critic.layers ? actor.layers : critic.layers;
    if (!net->gaussian)
        for (int64_t j = 0; j < given; j++) {
            int64_t action = ((const int64_t *)of->action)[of->rows[j]];
            if (action < 0 || action >= actions) return j;
        }
    float *grad = net->work, *values = grad + actions * count, *work = values + actions * count;
    float *packed = work + widths * count, *normals = packed + 2 * WIDE * (widths + count);
    float *scratch = normals + (widths + layers) * count;
    double mean = 0.0, factor = 1.0, share = 1.0 / (double)given;
    if (by->normalize_advantage && given > 1) {
        double squares = 0.0;
        for (int64_t j = 0; j < given; j++) mean += of->advantage[of->rows[j]] * share;
        for (int64_t j = 0; j < given; j++) {
            double off = of->advantage[of->rows[j]] - mean;
            squares += off * off;
        }
        factor = 1.0 / (sqrt(squares / (double)(given - 1)) + 1e-8);
    }
    Sums sums = {0};
    double std_grad[actions];
    memset(std_grad, 0, sizeof(std_grad));
    lay_out(of, inputs, count, work);
    const float *out = forward(&actor, net->actor, count, work, packed, normals);
    memset(grad, 0, sizeof(float) * actions * count);
    for (int64_t j = 0; j < given; j++) {
        int64_t row = of->rows[j];
        double advantage = (of->advantage[row] - mean) * factor;
        if (net->gaussian)
            gaussian(out + j, actions, count, by, net->log_std, (const float *)of->action + row * actions,
                     of->log_prob[row], advantage, share, grad + j, std_grad, &sums);
        else
            categorical(out + j, actions, count, by, of->mask ? of->mask + row * actions : 0,
                        ((const int64_t *)of->action)[row], of->log_prob[row], advantage, share, grad + j, &sums);
    }
    backward(&actor, net->actor, net->actor_grad, work, count, grad, scratch, packed, normals);
    if (net->gaussian)
        for (int64_t a = 0; a < actions; a++) net->log_std_grad[a] = (float)std_grad[a];
    out = forward(&critic, net->critic, count, work, packed, normals);
    memset(values, 0, sizeof(float) * count);
    for (int64_t j = 0; j < given; j++) {
        int64_t row = of->rows[j];
        values[j] = (float)(by->vf_coef * share * value_error(by, out[j], of->value[row], of->target[row], &sums));
    }
    backward(&critic, net->critic, net->critic_grad, work, count, values, scratch, packed, normals);
    facts[1] = sums.policy * share;
    facts[2] = sums.value * share;
    facts[3] = sums.entropy * share;
    facts[4] = sums.kl * share;
    facts[5] = sums.clipped * share;
    facts[0] = facts[1] - by->ent_coef * facts[3] + by->vf_coef * facts[2];
    return -1;
}
