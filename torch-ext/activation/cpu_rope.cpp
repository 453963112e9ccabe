// Rotary embedding on the CPU: checks, threads and memory around the kernel of cpu/activation.
#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "activation/activation.h"
#include "hk/memory.h"
#include "hk/tensor.h"
#include "registration.h"

namespace {

using hk::ScalarType;
using hk::Tensor;

// A second thread pays above a few microseconds of work.
constexpr int64_t kElementsPerThread = 32768;

// Outputs above this size are written around the caches.
constexpr int64_t kStreamMinBytes = int64_t{8} << 20;

// What q and k have in common, and which dims are which.
struct Shape {
  int64_t batches, tokens, head_dim;
  int64_t heads_at, tokens_at;
};

struct Options {
  int64_t rotary_dim;
  bool interleaved;
  int64_t unsqueeze_dim;
  bool transposed;
};

Shape check_heads(const char* op, const char* name, const Tensor& x, const Options& options) {
  hk::check_on_cpu(op, name, x);
  hk::check_float_type(op, name, x);
  STD_TORCH_CHECK(x.dim() == 4, op, ": ", name, " has shape ", hk::shape_text(x),
                  ", must have four dims");
  STD_TORCH_CHECK(options.unsqueeze_dim == 1 || options.unsqueeze_dim == 2, op,
                  ": unsqueeze_dim is ", options.unsqueeze_dim, ", must be 1 or 2");
  const int64_t heads_at = options.unsqueeze_dim, tokens_at = 3 - heads_at;
  const int64_t rotary_dim = options.rotary_dim, head_dim = x.size(3);
  STD_TORCH_CHECK(rotary_dim > 0 && rotary_dim % 2 == 0, op, ": rotary_dim is ", rotary_dim,
                  ", must be even and positive");
  STD_TORCH_CHECK(rotary_dim <= head_dim, op, ": rotary_dim is ", rotary_dim, ", last dim of ",
                  name, " has ", head_dim, " elements");
  return {x.size(0), x.size(tokens_at), head_dim, heads_at, tokens_at};
}

void check_k(const char* op, const char* q_name, const Tensor& q, const char* k_name,
             const Tensor& k, const Options& options) {
  const Shape of_q = check_heads(op, q_name, q, options);
  const Shape of_k = check_heads(op, k_name, k, options);
  STD_TORCH_CHECK(k.scalar_type() == q.scalar_type(), op, ": ", k_name, " is ",
                  hk::dtype_text(k.scalar_type()), ", must be the dtype of ", q_name, ", ",
                  hk::dtype_text(q.scalar_type()));
  STD_TORCH_CHECK(
      of_k.batches == of_q.batches && of_k.tokens == of_q.tokens && of_k.head_dim == of_q.head_dim,
      op, ": ", k_name, " has shape ", hk::shape_text(k), ", must be that of ", q_name, ", ",
      hk::shape_text(q), ", but for dim ", options.unsqueeze_dim, ", the heads (unsqueeze_dim)");
}

// Of q, or of the gradient that stands for it: what tables and ids are held against.
struct Heads {
  const char* name;
  const Tensor& tensor;
};

void check_table(const char* op, const char* name, const Tensor& table, const Heads& q,
                 int64_t rotary_dim) {
  hk::check_on_cpu(op, name, table);
  STD_TORCH_CHECK(
      table.scalar_type() == q.tensor.scalar_type() || table.scalar_type() == ScalarType::Float, op,
      ": ", name, " is ", hk::dtype_text(table.scalar_type()), ", must be Float or the dtype of ",
      q.name, ", ", hk::dtype_text(q.tensor.scalar_type()));
  const int64_t columns = table.dim() > 0 ? table.size(table.dim() - 1) : 0;
  STD_TORCH_CHECK(columns == rotary_dim || 2 * columns == rotary_dim, op, ": ", name, " has ",
                  columns, " columns, must have rotary_dim, ", rotary_dim, ", or half of it");
}

void check_tables(const char* op, const Tensor& cos, const Tensor& sin, const Heads& q,
                  int64_t rotary_dim) {
  check_table(op, "cos", cos, q, rotary_dim);
  check_table(op, "sin", sin, q, rotary_dim);
  STD_TORCH_CHECK(sin.scalar_type() == cos.scalar_type(), op, ": sin is ",
                  hk::dtype_text(sin.scalar_type()), ", must be the dtype of cos, ",
                  hk::dtype_text(cos.scalar_type()));
  STD_TORCH_CHECK(hk::same_shape(sin, cos), op, ": sin has shape ", hk::shape_text(sin),
                  ", must be the shape of cos, ", hk::shape_text(cos));
}

// Whether the first `dims` dims of t are [tokens], [1, tokens] or [batches, tokens].
bool fits(const Tensor& t, int64_t dims, const Shape& shape) {
  if (dims != 1 && dims != 2) return false;
  return t.size(dims - 1) == shape.tokens &&
         (dims == 1 || t.size(0) == 1 || t.size(0) == shape.batches);
}

void check_rows(const char* op, const char* of, const Tensor& cos,
                const std::optional<Tensor>& position_ids, const Shape& shape) {
  if (!position_ids) {
    STD_TORCH_CHECK(fits(cos, cos.dim() - 1, shape), op, ": cos has shape ", hk::shape_text(cos),
                    ", ", of, " has ", shape.batches, " batches of ", shape.tokens, " tokens");
    return;
  }
  STD_TORCH_CHECK(cos.dim() == 2, op, ": cos has shape ", hk::shape_text(cos),
                  ", must have two dims with position_ids");
  hk::check_on_cpu(op, "position_ids", *position_ids);
  const ScalarType type = position_ids->scalar_type();
  STD_TORCH_CHECK(type == ScalarType::Long || type == ScalarType::Int, op, ": position_ids is ",
                  hk::dtype_text(type), ", must be Long or Int");
  STD_TORCH_CHECK(fits(*position_ids, position_ids->dim(), shape), op, ": position_ids has shape ",
                  hk::shape_text(*position_ids), ", ", of, " has ", shape.batches, " batches of ",
                  shape.tokens, " tokens");
}

// The row of cos and sin of each token of each batch.
template <typename Id>
std::vector<int64_t> rows_of(const char* op, const Tensor& position_ids, int64_t count,
                             int64_t batches) {
  const Tensor dense = torch::stable::contiguous(position_ids);
  const Id* ids = static_cast<const Id*>(dense.const_data_ptr());
  const int64_t given = dense.numel();
  for (int64_t i = 0; i < given; ++i) {
    STD_TORCH_CHECK(ids[i] >= 0 && ids[i] < count, op, ": position_ids has ",
                    static_cast<int64_t>(ids[i]), ", cos has ", count, " rows, from 0 on");
  }
  std::vector<int64_t> rows(ids, ids + given);
  const bool of_each_batch = position_ids.dim() == 2 && position_ids.size(0) == batches;
  for (int64_t batch = 1; batch < batches && !of_each_batch; ++batch) {
    rows.insert(rows.end(), ids, ids + given);
  }
  return rows;
}

// A table whose rows are dense.
struct Table {
  explicit Table(const Tensor& t)
      : tensor(t.stride(t.dim() - 1) == 1 || t.size(t.dim() - 1) == 1
                   ? t
                   : torch::stable::contiguous(t)) {}
  const void* data() const { return tensor.const_data_ptr(); }
  int64_t row() const { return tensor.stride(tensor.dim() - 2); }
  int64_t batch() const { return tensor.dim() == 3 && tensor.size(0) > 1 ? tensor.stride(0) : 0; }
  Tensor tensor;
};

// Rotates x into a tensor of its own. `x` in here is kept alive by `dense`.
struct Rotated {
  Rotated(const Tensor& x, const Shape& shape)
      : dense(x.stride(3) == 1 || x.size(3) == 1 ? x : torch::stable::contiguous(x)),
        y(torch::stable::new_empty(x, x.sizes(), x.scalar_type())) {
    hk::advise_huge_pages(y.mutable_data_ptr(), bytes());
    heads = {
        .x = dense.const_data_ptr(),
        .x_batch = dense.stride(0),
        .x_token = dense.stride(shape.tokens_at),
        .x_head = dense.stride(shape.heads_at),
        .y = y.mutable_data_ptr(),
        .y_batch = y.stride(0),
        .y_token = y.stride(shape.tokens_at),
        .y_head = y.stride(shape.heads_at),
        .heads = dense.size(shape.heads_at),
    };
  }
  int64_t bytes() const { return y.numel() * static_cast<int64_t>(y.element_size()); }

  Tensor dense, y;
  hk::RopeHeads heads;
};

// Either of q and k may be missing. name: of the first that is there.
std::tuple<Tensor, Tensor> rotate(const char* op, const char* name, const std::optional<Tensor>& q,
                                  const std::optional<Tensor>& k, const Tensor& cos,
                                  const Tensor& sin, const std::optional<Tensor>& position_ids,
                                  const Shape& shape, const Options& options) {
  const Tensor& one = q ? *q : *k;  // NOLINT(bugprone-unchecked-optional-access): one is there
  check_tables(op, cos, sin, {name, one}, options.rotary_dim);
  check_rows(op, name, cos, position_ids, shape);
  std::vector<int64_t> rows;
  if (position_ids && position_ids->scalar_type() == ScalarType::Long) {
    rows = rows_of<int64_t>(op, *position_ids, cos.size(0), shape.batches);
  } else if (position_ids) {
    rows = rows_of<int32_t>(op, *position_ids, cos.size(0), shape.batches);
  }
  const hk::ActivationKernels& kernels = hk::activation_kernels();

  std::optional<Rotated> of_q, of_k;
  if (q) of_q.emplace(*q, shape);
  if (k) of_k.emplace(*k, shape);
  const int64_t none[] = {0};
  const auto result = [&](const std::optional<Rotated>& rotated) {
    return rotated ? rotated->y : torch::stable::new_empty(one, none, one.scalar_type());
  };
  const int64_t tokens = shape.batches * shape.tokens;
  const int64_t heads = (of_q ? of_q->heads.heads : 0) + (of_k ? of_k->heads.heads : 0);
  if (tokens == 0 || heads == 0) return {result(of_q), result(of_k)};

  const Table cosines(cos), sines(sin);
  const hk::Rope args{
      .dtype = hk::dtype_of(one),
      .table_dtype = hk::dtype_of(cos),
      .q = of_q ? of_q->heads : hk::RopeHeads{},
      .k = of_k ? of_k->heads : hk::RopeHeads{},
      .cos = cosines.data(),
      .sin = sines.data(),
      .cos_batch = cosines.batch(),
      .cos_row = cosines.row(),
      .sin_batch = sines.batch(),
      .sin_row = sines.row(),
      .rows = position_ids ? rows.data() : nullptr,
      .tokens = shape.tokens,
      .head_dim = shape.head_dim,
      .rotary_dim = options.rotary_dim,
      .once = cos.size(cos.dim() - 1) != options.rotary_dim,
      .interleaved = options.interleaved,
      .transposed = options.transposed,
      .stream = (of_q ? of_q->bytes() : 0) + (of_k ? of_k->bytes() : 0) > kStreamMinBytes,
  };
  const int64_t grain = std::max<int64_t>(1, kElementsPerThread / (heads * shape.head_dim));
  torch::stable::parallel_for(0, tokens, grain,
                              [&](int64_t begin, int64_t end) { kernels.rope(args, begin, end); });
  return {result(of_q), result(of_k)};
}

std::tuple<Tensor, Tensor> rope(const Tensor& q, const Tensor& k, const Tensor& cos,
                                const Tensor& sin, const std::optional<Tensor>& position_ids,
                                int64_t rotary_dim, bool interleaved, int64_t unsqueeze_dim) {
  const Options options{rotary_dim, interleaved, unsqueeze_dim, false};
  const Shape shape = check_heads("rope", "q", q, options);
  check_k("rope", "q", q, "k", k, options);
  return rotate("rope", "q", q, k, cos, sin, position_ids, shape, options);
}

std::tuple<Tensor, Tensor> rope_backward(const std::optional<Tensor>& grad_q,
                                         const std::optional<Tensor>& grad_k, const Tensor& cos,
                                         const Tensor& sin,
                                         const std::optional<Tensor>& position_ids,
                                         int64_t rotary_dim, bool interleaved,
                                         int64_t unsqueeze_dim) {
  const char* op = "rope_backward";
  const Options options{rotary_dim, interleaved, unsqueeze_dim, true};
  STD_TORCH_CHECK(grad_q || grad_k, op, ": grad_q and grad_k are both missing");
  if (grad_q && grad_k) check_k(op, "grad_q", *grad_q, "grad_k", *grad_k, options);
  const char* name = grad_q ? "grad_q" : "grad_k";
  const Shape shape = check_heads(op, name, grad_q ? *grad_q : *grad_k, options);
  return rotate(op, name, grad_q, grad_k, cos, sin, position_ids, shape, options);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, m) {
  m.impl("rope", TORCH_BOX(&rope));
  m.impl("rope_backward", TORCH_BOX(&rope_backward));
}
