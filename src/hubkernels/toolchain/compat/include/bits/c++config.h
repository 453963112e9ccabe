// The standard library's own configuration, without what glibc has only since 2.30: waiting on the
// monotonic clock then goes through the system's, as it did before.
#pragma GCC system_header
#include_next <bits/c++config.h>
#undef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT
#undef _GLIBCXX_USE_PTHREAD_MUTEX_CLOCKLOCK
#undef _GLIBCXX_USE_PTHREAD_RWLOCK_CLOCKLOCK
