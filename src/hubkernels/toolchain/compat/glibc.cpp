// What newer headers and newer static libraries ask of glibc and glibc 2.28 does not export,
// spelled with what it does. Linked into every library, hidden, and dropped by the linker where
// nothing refers to it. It includes nothing: the headers of this machine would redirect its calls
// again.

extern "C" {

using size_t = decltype(sizeof 0);

// Functions that a library gets from libc_nonshared.a: there until glibc 2.33, exported since then
// (stat and its kin), or always (atexit and its kin).
#ifdef __x86_64__
constexpr int kStatVersion = 1;
#else
constexpr int kStatVersion = 0;
#endif
constexpr int kMknodVersion = 0;

extern void* __dso_handle;
int __cxa_atexit(void (*)(void*), void*, void*);
int __cxa_at_quick_exit(void (*)(void*), void*);
int __register_atfork(void (*)(), void (*)(), void (*)(), void*);
int __xstat(int, const char*, void*);
int __lxstat(int, const char*, void*);
int __fxstat(int, int, void*);
int __fxstatat(int, int, const char*, void*, int);
int __xmknod(int, const char*, unsigned, unsigned long*);
int __xmknodat(int, int, const char*, unsigned, unsigned long*);

int atexit(void (*function)()) {
  return __cxa_atexit(reinterpret_cast<void (*)(void*)>(function), nullptr, &__dso_handle);
}
int at_quick_exit(void (*function)()) {
  return __cxa_at_quick_exit(reinterpret_cast<void (*)(void*)>(function), &__dso_handle);
}
int pthread_atfork(void (*prepare)(), void (*parent)(), void (*child)()) {
  return __register_atfork(prepare, parent, child, &__dso_handle);
}
int stat(const char* path, void* to) { return __xstat(kStatVersion, path, to); }
int lstat(const char* path, void* to) { return __lxstat(kStatVersion, path, to); }
int fstat(int file, void* to) { return __fxstat(kStatVersion, file, to); }
int fstatat(int folder, const char* path, void* to, int flags) {
  return __fxstatat(kStatVersion, folder, path, to, flags);
}
int mknod(const char* path, unsigned mode, unsigned long device) {
  return __xmknod(kMknodVersion, path, mode, &device);
}
int mknodat(int folder, const char* path, unsigned mode, unsigned long device) {
  return __xmknodat(kMknodVersion, folder, path, mode, &device);
}
// On 64-bit systems these are the same functions.
int stat64(const char* path, void* to) { return stat(path, to); }
int lstat64(const char* path, void* to) { return lstat(path, to); }
int fstat64(int file, void* to) { return fstat(file, to); }
int fstatat64(int folder, const char* path, void* to, int flags) {
  return fstatat(folder, path, to, flags);
}

// glibc 2.30 and 2.32. libstdc++ reads the variable: 0 lets it count references atomically, always.
long syscall(long, ...);
#ifdef __x86_64__
constexpr long kGetTid = 186;
#else
constexpr long kGetTid = 178;
#endif
int gettid() { return static_cast<int>(syscall(kGetTid)); }
extern char __libc_single_threaded;
char __libc_single_threaded = 0;

// glibc 2.36. libstdc++'s std::random_device calls the first.
int getentropy(void*, size_t);
void abort() __attribute__((noreturn));
void arc4random_buf(void* to, size_t size) {
  constexpr size_t kMost = 256;  // getentropy gives no more at once
  for (char* at = static_cast<char*>(to); size > 0;) {
    const size_t now = size < kMost ? size : kMost;
    if (getentropy(at, now) != 0) abort();
    at += now;
    size -= now;
  }
}
unsigned arc4random() {
  unsigned value;
  arc4random_buf(&value, sizeof value);
  return value;
}
unsigned arc4random_uniform(unsigned bound) {
  if (bound < 2) return 0;
  const unsigned uneven = -bound % bound;  // below it some remainders would come up more often
  unsigned value = arc4random();
  while (value < uneven) value = arc4random();
  return value % bound;
}

// glibc 2.38. Its headers send these to functions that read binary numbers of C23 too.
long strtol(const char*, char**, int);
unsigned long strtoul(const char*, char**, int);
long wcstol(const wchar_t*, wchar_t**, int);
unsigned long wcstoul(const wchar_t*, wchar_t**, int);
int __isoc99_vsscanf(const char*, const char*, __builtin_va_list);
int __isoc99_vfscanf(void*, const char*, __builtin_va_list);

long __isoc23_strtol(const char* text, char** end, int base) { return strtol(text, end, base); }
long long __isoc23_strtoll(const char* text, char** end, int base) {
  return strtol(text, end, base);
}
long __isoc23_strtoimax(const char* text, char** end, int base) { return strtol(text, end, base); }
unsigned long __isoc23_strtoul(const char* text, char** end, int base) {
  return strtoul(text, end, base);
}
unsigned long long __isoc23_strtoull(const char* text, char** end, int base) {
  return strtoul(text, end, base);
}
unsigned long __isoc23_strtoumax(const char* text, char** end, int base) {
  return strtoul(text, end, base);
}
long __isoc23_wcstol(const wchar_t* text, wchar_t** end, int base) {
  return wcstol(text, end, base);
}
long long __isoc23_wcstoll(const wchar_t* text, wchar_t** end, int base) {
  return wcstol(text, end, base);
}
unsigned long __isoc23_wcstoul(const wchar_t* text, wchar_t** end, int base) {
  return wcstoul(text, end, base);
}
unsigned long long __isoc23_wcstoull(const wchar_t* text, wchar_t** end, int base) {
  return wcstoul(text, end, base);
}
int __isoc23_vsscanf(const char* text, const char* format, __builtin_va_list values) {
  return __isoc99_vsscanf(text, format, values);
}
int __isoc23_vfscanf(void* file, const char* format, __builtin_va_list values) {
  return __isoc99_vfscanf(file, format, values);
}
int __isoc23_sscanf(const char* text, const char* format, ...) {
  __builtin_va_list values;
  __builtin_va_start(values, format);
  const int read = __isoc99_vsscanf(text, format, values);
  __builtin_va_end(values);
  return read;
}
int __isoc23_fscanf(void* file, const char* format, ...) {
  __builtin_va_list values;
  __builtin_va_start(values, format);
  const int read = __isoc99_vfscanf(file, format, values);
  __builtin_va_end(values);
  return read;
}

}  // extern "C"
