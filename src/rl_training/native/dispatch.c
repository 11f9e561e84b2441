/* Chooses what was compiled for this processor, and says of which sources. */

#include "dqn_gradient.h"
#include "lstm.h"
#include "mlp.h"
#include "ppo_gradient.h"
#include "product.h"

#ifdef HAS_AVX2
#define CHOOSE(name, ...) \
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? name##_avx2(__VA_ARGS__) \
                                                                           : name##_plain(__VA_ARGS__)
#else
#define CHOOSE(name, ...) return name##_plain(__VA_ARGS__)
#endif

int64_t dqn_gradient(const Network *net, const Batch *batch, float *facts) { CHOOSE(dqn_gradient, net, batch, facts); }

void lstm_forward(const Lstm *of) { CHOOSE(lstm_forward, of); }

void lstm_backward(const Lstm *of, const float *by_hiddens, float *by_hidden, float *by_cell) {
    CHOOSE(lstm_backward, of, by_hiddens, by_hidden, by_cell);
}

int64_t ppo_gradient(const ActorCritic *net, const Surrogate *by, const Samples *of, double *facts) {
    CHOOSE(ppo_gradient, net, by, of, facts);
}

int64_t ppo_outputs(const Surrogate *by, const Samples *of, const float *log_std, int64_t actions, const float *out,
                    const float *value, float *grad, float *value_grad, float *log_std_grad, double *facts) {
    CHOOSE(ppo_outputs, by, of, log_std, actions, out, value, grad, value_grad, log_std_grad, facts);
}

int64_t ppo_steps(const ActorCritic *net, const Surrogate *by, Samples *of, const Adam *adam, int64_t batch,
                  double kl_limit, double *facts, double *sums) {
    CHOOSE(ppo_steps, net, by, of, adam, batch, kl_limit, facts, sums);
}

/* Large networks only: a processor may lower its clock for registers of 512 bits, which small ones do not make up for. */
#ifdef HAS_AVX512
#define CHOOSE_WIDE(name, ...) \
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && \
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) \
        return name##_avx512(__VA_ARGS__); \
    CHOOSE(name, __VA_ARGS__)
#else
#define CHOOSE_WIDE CHOOSE
#endif

void mlp_forward(const Mlp *net, int64_t count, const float *x, float *work) {
    CHOOSE_WIDE(mlp_forward, net, count, x, work);
}

void mlp_backward(const Mlp *net, int64_t given, const float *x, const float *work, int64_t count, const int64_t *rows,
                  const float *grad, float *scratch, int64_t store, float *slope, int64_t first) {
    CHOOSE_WIDE(mlp_backward, net, given, x, work, count, rows, grad, scratch, store, slope, first);
}

void normalized_forward(const Normalized *net, int64_t count, const float *x, float *work, int64_t learning) {
    CHOOSE_WIDE(normalized_forward, net, count, x, work, learning);
}

void normalized_backward(const Normalized *net, int64_t given, const float *x, const float *work, int64_t count,
                         const int64_t *rows, const float *grad, float *scratch, int64_t store, float *slope,
                         int64_t first, int64_t learning) {
    CHOOSE_WIDE(normalized_backward, net, given, x, work, count, rows, grad, scratch, store, slope, first, learning);
}

void wide_product(const Factor *a, const Factor *b, const float *start, float *out, int64_t rows, int64_t inner,
                  int64_t columns, int64_t threads) {
    CHOOSE_WIDE(wide_product, a, b, start, out, rows, inner, columns, threads);
}

void advantages(int64_t steps, int64_t envs, const float *reward, const float *value, const float *following,
                const uint8_t *done, const uint8_t *valid, double gamma, double lambda, float *estimate) {
    for (int64_t e = 0; e < envs; e++) {
        double ahead = 0.0;
        for (int64_t t = steps - 1; t >= 0; t--) {
            int64_t i = t * envs + e;
            if (valid[i]) ahead = reward[i] + gamma * following[i] - value[i] + (done[i] ? 0.0 : gamma * lambda * ahead);
            estimate[i] = (float)ahead;
        }
    }
}

/* Whether the library was compiled with OpenMP; else it has one thread. */
int64_t has_threads(void) {
#ifdef _OPENMP
    return 1;
#else
    return 0;
#endif
}

const char *sources(void) { return SOURCES; }
