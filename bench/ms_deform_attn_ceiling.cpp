// The ceiling of deformable attention that packs each head: the same copy of the values and the
// same addresses in the same order, read and added up without coefficients, from a table of
// corners made beforehand. bench/ms_deform_attn_ceiling.py compiles and calls it.
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace {

using ParallelFor = int32_t (*)(int64_t begin, int64_t end, int64_t grain,
                                void (*body)(int64_t, int64_t, void*), void* context);

typedef float Vector __attribute__((vector_size(64)));
constexpr int64_t kLanes = 16;

struct Job {
  const float* value;    // [batch, pixels, heads, channels]
  const int32_t* table;  // [batch, heads, queries, corners], `pixels` for what is outside
  float* out;            // [batch, queries, heads, channels]
  int64_t pixels, heads, channels, queries, corners;
};

template <int Groups>
void head(const Job& job, int64_t number, float* packed) {
  const int64_t image = number / job.heads, own = number % job.heads;
  const int64_t step = job.heads * job.channels;
  const float* from = job.value + image * job.pixels * step + own * job.channels;
  for (int64_t s = 0; s < job.pixels; ++s) {
    std::memcpy(packed + s * job.channels, from + s * step, Groups * sizeof(Vector));
  }
  std::memset(packed + job.pixels * job.channels, 0, Groups * sizeof(Vector));
  const int32_t* corner = job.table + number * job.queries * job.corners;
  for (int64_t query = 0; query < job.queries; ++query, corner += job.corners) {
    Vector sum[4][Groups] = {};
    for (int64_t c = 0; c < job.corners; c += 4) {
      for (int64_t k = 0; k < 4; ++k) {
        const float* pixel = packed + corner[c + k] * job.channels;
        for (int g = 0; g < Groups; ++g) {
          Vector read;
          std::memcpy(&read, pixel + g * kLanes, sizeof(read));
          sum[k][g] += read;
        }
      }
    }
    float* to = job.out + (image * job.queries + query) * step + own * job.channels;
    for (int g = 0; g < Groups; ++g) {
      const Vector all = (sum[0][g] + sum[1][g]) + (sum[2][g] + sum[3][g]);
      std::memcpy(to + g * kLanes, &all, sizeof(all));
    }
  }
}

void heads(int64_t begin, int64_t end, void* context) {
  const Job& job = *static_cast<const Job*>(context);
  const std::size_t floats = static_cast<std::size_t>((job.pixels + 1) * job.channels);
  constexpr std::align_val_t kLine{64};
  auto* packed = static_cast<float*>(::operator new(floats * sizeof(float), kLine));
  for (int64_t number = begin; number < end; ++number) {
    job.channels == 32 ? head<2>(job, number, packed) : head<1>(job, number, packed);
  }
  ::operator delete(packed, kLine);
}

}  // namespace

// channels is 16 or 32. parallel_for is torch's own, so that both use the same threads.
extern "C" void gather_ceiling(ParallelFor parallel_for, const float* value, const int32_t* table,
                               float* out, int64_t batch, int64_t pixels, int64_t heads_,
                               int64_t channels, int64_t queries, int64_t corners) {
  Job job{value, table, out, pixels, heads_, channels, queries, corners};
  parallel_for(0, batch * heads_, 1, heads, &job);
}
