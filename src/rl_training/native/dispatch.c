/* Chooses what was compiled for this processor, and says of which sources. */

#include "dqn_gradient.h"

int64_t dqn_gradient(const Network *net, const Batch *batch, float *facts) {
#ifdef HAS_AVX2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return dqn_gradient_avx2(net, batch, facts);
#endif
    return dqn_gradient_plain(net, batch, facts);
}

const char *sources(void) { return SOURCES; }
