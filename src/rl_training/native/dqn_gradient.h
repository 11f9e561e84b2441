/* What the caller in Python and the compiled code agree on; see algorithms/compiled_dqn.py. */

#ifndef DQN_GRADIENT_H
#define DQN_GRADIENT_H

#include <stdint.h>

typedef struct {
    int64_t layers;     /* of weights */
    int64_t parameters; /* of all layers */
    const int64_t *sizes; /* [layers + 1] */
    int64_t layer_norm, dueling, choose_online, huber; /* 0 or 1 */
    const float *online, *target; /* [parameters] */
    float *grad;                  /* [parameters] */
    float *work; /* [count * (4 * outputs + 2 * sum(sizes) + 3 * max(sizes) + layers + 16) + 16 * sum(sizes)], count in
                  * whole eights */
} Network;

/* Of a sample j, what begins at data + j * stride, counted in items; no data: there is none. */
typedef struct {
    const float *data;
    int64_t stride;
} Matrix;

typedef struct {
    const int64_t *data;
    int64_t stride;
} Indices;

typedef struct {
    const uint8_t *data;
    int64_t stride;
} Masks;

typedef struct {
    int64_t count;
    Matrix obs, next_obs;
    Indices action;
    Matrix reward, discount, weight;
    Masks next_mask;
} Batch;

/* Write the gradient of the mean loss to net->grad, and value, target, error, weighted loss to facts [4, count]. Return
 * -1, or the first sample whose action does not exist; then nothing is written. */
int64_t dqn_gradient(const Network *net, const Batch *batch, float *facts);
int64_t dqn_gradient_plain(const Network *net, const Batch *batch, float *facts);
int64_t dqn_gradient_avx2(const Network *net, const Batch *batch, float *facts);

#endif
