/* The gradient of DQN's loss through a small perceptron with rectified units; see native/perceptron.h.
 *
 * Compiled several times, for different processors, each time with another name; see native/dispatch.c.
 */

#include "dqn_gradient.h"
#include "perceptron.h"

/* Lay samples side by side as a network's inputs: the first `given` come from x, the others are zeros. */
static void lay_out(Matrix x, int64_t inputs, int64_t given, int64_t count, float *work) {
    memset(work, 0, sizeof(float) * inputs * count);
    for (int64_t i = 0; i < inputs; i++)
        for (int64_t j = 0; j < given; j++) work[i * count + j] = x.data[j * x.stride + i];
}

/* Write Q-values [actions, count] of an output; with dueling, V + A - mean(A). */
static void q_values(const Network *net, const float *out, int64_t count, float *q) {
    int64_t actions = net->sizes[net->layers] - net->dueling;
    memcpy(q, out + net->dueling * count, sizeof(float) * actions * count);
    if (!net->dueling) return;
    for (int64_t j = 0; j < count; j++) {
        float mean = 0.0f;
        for (int64_t a = 0; a < actions; a++) mean += q[a * count + j];
        mean /= (float)actions;
        for (int64_t a = 0; a < actions; a++) q[a * count + j] += out[j] - mean;
    }
}

/* Turn the gradient by Q-values, which lies behind the room for one row, into that by the output. */
static void through_q_values(const Network *net, float *grad, int64_t count) {
    int64_t actions = net->sizes[net->layers] - 1;
    for (int64_t j = 0; j < count; j++) {
        float total = 0.0f;
        for (int64_t a = 1; a <= actions; a++) total += grad[a * count + j];
        grad[j] = total;
        for (int64_t a = 1; a <= actions; a++) grad[a * count + j] -= total / (float)actions;
    }
}

/* Return the action of the highest Q-value of a sample among those that are allowed, or 0 if none is; what is not a
 * number counts as the highest, so that it is not lost. */
static int64_t best_action(const float *q, int64_t actions, int64_t count, int64_t j, const Batch *batch) {
    int64_t best = -1;
    for (int64_t a = 0; a < actions; a++) {
        if (batch->next_mask.data && !batch->next_mask.data[j * batch->next_mask.stride + a]) continue;
        float value = q[a * count + j], highest = best < 0 ? 0.0f : q[best * count + j];
        if (best < 0 || value > highest || (value != value && highest == highest)) best = a;
    }
    return best < 0 ? 0 : best;
}

/* Write the gradient of the loss by q, zeros for samples that were not given; and value, target, error and weighted
 * loss of each to facts. */
static void head(const Network *net, const Batch *batch, int64_t count, const float *q, const float *next_q,
                 const float *choosing, float *grad, float *facts) {
    int64_t given = batch->count, actions = net->sizes[net->layers] - net->dueling;
    memset(grad, 0, sizeof(float) * actions * count);
    for (int64_t j = 0; j < given; j++) {
        int64_t action = batch->action.data[j * batch->action.stride];
        int64_t next = best_action(choosing, actions, count, j, batch);
        float reward = batch->reward.data[j * batch->reward.stride];
        float target = reward + batch->discount.data[j * batch->discount.stride] * next_q[next * count + j];
        float value = q[action * count + j], error = value - target;
        /* Huber's slope is the error cut off at 1, that of the square is twice the error. */
        float slope = error + error, loss = error * error;
        if (net->huber) {
            slope = error > 1.0f ? 1.0f : error < -1.0f ? -1.0f : error;
            loss = slope * (error - 0.5f * slope);
        }
        float weight = batch->weight.data ? batch->weight.data[j * batch->weight.stride] : 1.0f;
        grad[action * count + j] = weight * slope / (float)given;
        facts[j] = value;
        facts[given + j] = target;
        facts[2 * given + j] = error;
        facts[3 * given + j] = weight * loss;
    }
}

int64_t OF_KIND(dqn_gradient)(const Network *net, const Batch *batch, float *facts) {
    int64_t given = batch->count, outputs = net->sizes[net->layers], widths = 0;
    for (int64_t j = 0; j < given; j++) {
        int64_t action = batch->action.data[j * batch->action.stride];
        if (action < 0 || action >= outputs - net->dueling) return j;
    }
    int64_t count = (given + WIDE - 1) / WIDE * WIDE;
    for (int64_t i = 0; i <= net->layers; i++) widths += net->sizes[i];
    float *next_q = net->work, *choosing = next_q + outputs * count, *q = choosing + outputs * count;
    float *grad = q + outputs * count, *layers = grad + outputs * count, *packed = layers + widths * count;
    float *normals = packed + 2 * WIDE * (widths + count), *scratch = normals + (widths + net->layers) * count;
    Perceptron mlp = {net->layers, net->sizes, net->layer_norm, 0};
    lay_out(batch->next_obs, net->sizes[0], given, count, layers);
    q_values(net, forward(&mlp, net->target, count, layers, packed, normals), count, next_q);
    if (net->choose_online) q_values(net, forward(&mlp, net->online, count, layers, packed, normals), count, choosing);
    lay_out(batch->obs, net->sizes[0], given, count, layers);
    q_values(net, forward(&mlp, net->online, count, layers, packed, normals), count, q);
    head(net, batch, count, q, next_q, net->choose_online ? choosing : next_q, grad + net->dueling * count, facts);
    if (net->dueling) through_q_values(net, grad, count);
    backward(&mlp, net->online, net->grad, layers, count, grad, scratch, packed, normals);
    return -1;
}
