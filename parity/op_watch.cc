#include "parity/op_watch.h"

#include <array>

namespace tandem {
namespace {

// In the order in which a layer calls them.
constexpr std::array<const char*, 4> kLinears = {"linear qkv", "linear o", "linear gate_up",
                                                 "linear down"};

const char* LinearName(int ordinal) {
  return ordinal < 4 ? kLinears[static_cast<size_t>(ordinal)] : "linear";
}

}  // namespace

std::string WatchedOps::RowBytes(const Matrix& matrix, int64_t row) const {
  const auto element = static_cast<int64_t>(DTypeBytes(compute_dtype()));
  const auto* begin = static_cast<const char*>(matrix.data) + row * matrix.stride * element;
  return {begin, static_cast<size_t>(matrix.cols * element)};
}

OpLabel WatchedOps::Label(const std::string& name) {
  const int layer = next_index_ == 0 || !in_layers() ? -1 : adds_ / 2;
  return {next_index_++, layer, name};
}

void WatchedOps::Report(const std::string& name, const Matrix& out) {
  Waiting result{Label(name), {}};
  for (int64_t row = 0; row < out.rows; ++row) {
    const std::string bytes = RowBytes(out, row);
    if (keys_.empty()) {
      result.rows.push_back(bytes);
    } else {
      listener_->OnRow(result.label, keys_[static_cast<size_t>(row)], bytes.data(),
                       std::ssize(bytes));
    }
  }
  if (keys_.empty()) waiting_.push_back(std::move(result));
}

void WatchedOps::LearnRows(const std::vector<AttentionSpan>& spans, int64_t rows) {
  keys_.resize(static_cast<size_t>(rows));
  for (const AttentionSpan& span : spans) {
    for (int64_t i = 0; i < span.rows; ++i) {
      keys_[static_cast<size_t>(span.first_row + i)] = {span.sequence, span.first_position + i};
    }
  }
  for (const Waiting& result : waiting_) {
    for (size_t row = 0; row < result.rows.size(); ++row) {
      listener_->OnRow(result.label, keys_[row], result.rows[row].data(),
                       std::ssize(result.rows[row]));
    }
  }
  waiting_.clear();
}

void WatchedOps::Embed(const int32_t* ids, const LinearWeight& table, Matrix out) {
  ForwardOpsDecorator::Embed(ids, table, out);
  next_index_ = adds_ = linears_ = norms_ = 0;
  keys_.clear();
  waiting_.clear();
  residual_rows_.clear();
  Report("embed", out);
}

void WatchedOps::RmsNorm(Matrix in, const void* weight, float eps, Matrix out) {
  if (!in_layers()) {
    FinalNorm(in, out, weight, eps);
    return;
  }
  ForwardOpsDecorator::RmsNorm(in, weight, eps, out);
  std::string name = linears_ == 0 ? "rms_norm input" : "rms_norm post_attention";
  if (linears_ == 1) name = "rms_norm q/k head " + std::to_string(norms_ - 1);
  ++norms_;
  Report(name, out);
}

void WatchedOps::FinalNorm(const Matrix& in, const Matrix& out, const void* weight, float eps) {
  // The inputs are copied first, because `in` and `out` may be the same matrix.
  std::vector<std::string> inputs;
  for (int64_t row = 0; row < in.rows; ++row) inputs.push_back(RowBytes(in, row));
  ForwardOpsDecorator::RmsNorm(in, weight, eps, out);
  const OpLabel label{next_index_, -1, "rms_norm final"};
  for (int64_t row = 0; row < out.rows; ++row) {
    const std::string bytes = RowBytes(out, row);
    const auto [first, last] = residual_rows_.equal_range(inputs[static_cast<size_t>(row)]);
    for (auto found = first; found != last; ++found) {
      listener_->OnRow(label, keys_[static_cast<size_t>(found->second)], bytes.data(),
                       std::ssize(bytes));
    }
  }
}

void WatchedOps::Linear(Matrix in, const LinearWeight& weight, Matrix out) {
  ForwardOpsDecorator::Linear(in, weight, out);
  Report(LinearName(linears_++), out);
}

void WatchedOps::Add(Matrix x, Matrix delta) {
  ForwardOpsDecorator::Add(x, delta);
  Report(adds_ % 2 == 0 ? "add attention" : "add mlp", x);
  if (++adds_ % 2 == 0) linears_ = norms_ = 0;
  if (in_layers()) return;
  for (int64_t row = 0; row < x.rows; ++row) residual_rows_.emplace(RowBytes(x, row), row);
}

void WatchedOps::Attention(Matrix qkv,
                           const AttentionShape& shape,
                           const std::vector<AttentionSpan>& spans,
                           KvLayer kv,
                           Matrix out) {
  // All rows are rotated by now; RopeAndStore may have been called for some spans at a time.
  Report("rope_and_store", qkv);
  if (keys_.empty()) LearnRows(spans, qkv.rows);
  ForwardOpsDecorator::Attention(qkv, shape, spans, kv, out);
  Report("attention", out);
}

void WatchedOps::SiluMul(Matrix gate_up, Matrix out) {
  ForwardOpsDecorator::SiluMul(gate_up, out);
  Report("silu_mul", out);
}

}  // namespace tandem
