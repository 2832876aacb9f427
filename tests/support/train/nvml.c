/* A stand-in for NVIDIA's management library, libnvidia-ml.so.1, with one GPU or one part of it (MIG).

   Built with -DUUID="GPU-..."; -DMIG=1: MIG is on; -DNO_COUNTER: no counter of energy; -DNO_POWER: no power either;
   -DRESET: the counter begins anew; -DFROZEN: it stands still. The counter rises by 50 J at each call, and the power is 250 W. */
#include <string.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6 };
static int gpu;

int nvmlInitWithFlags(unsigned int flags) { return OK; }
int nvmlInit_v2(void) { return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return "an error"; }

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = &gpu;
    return strcmp(uuid, UUID) ? NOT_FOUND : OK;
}

int nvmlDeviceGetMigMode(void *device, unsigned int *current, unsigned int *pending) {
#ifdef MIG
    *current = *pending = MIG;
    return OK;
#else
    return NOT_SUPPORTED;
#endif
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
    static unsigned long long total = 1000000;
#ifdef NO_COUNTER
    return NOT_SUPPORTED;
#elif defined RESET
    *millijoules = total -= 50000;
#elif defined FROZEN
    *millijoules = total;
#else
    *millijoules = total += 50000;
#endif
    return OK;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned int *milliwatts) {
    *milliwatts = 250000;
#ifdef NO_POWER
    return NOT_SUPPORTED;
#else
    return OK;
#endif
}
