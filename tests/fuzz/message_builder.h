// Makes protobuf messages of bytes, so that a fuzzer changes fields and not encodings: each input
// is a message, and a byte more or less is a field more or less.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

namespace tandem::fuzz {

// Hands out an input front to back, and zeros behind it.
class ByteSource {
 public:
  explicit ByteSource(std::string_view bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }
  uint8_t Byte() {
    if (bytes_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(bytes_[0]);
    bytes_.remove_prefix(1);
    return byte;
  }
  template <typename T>
  T Raw() {
    T value{};
    const size_t size = std::min(sizeof(T), bytes_.size());
    std::memcpy(&value, bytes_.data(), size);
    bytes_.remove_prefix(size);
    return value;
  }
  // Small, at an end of the range, or anything.
  int64_t Integer() {
    const uint8_t kind = Byte();
    if (kind < 0xE0) return static_cast<int64_t>(kind) - 32;
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    constexpr int64_t kEnds[] = {
        kMax,     -kMax - 1,        int64_t{1} << 31, -(int64_t{1} << 31), int64_t{1} << 32,
        kMax - 1, int64_t{1} << 20, 100'000};
    return kind < 0xF0 ? kEnds[kind % 8] : Raw<int64_t>();
  }
  double Number() {
    const uint8_t kind = Byte();
    if (kind < 0xE0) return (static_cast<double>(kind) - 32) / 8;
    const double ends[] = {INFINITY, -INFINITY, NAN, -0.0, 1e308, 1e-308, 1e39, -1e39};
    return kind < 0xF0 ? ends[kind % 8] : Raw<double>();
  }
  // protobuf takes only UTF-8 into a field of text.
  std::string Text() {
    const uint8_t kind = Byte();
    if (kind >= 0xF0) return std::string(size_t{1} << (kind & 15), 'x');
    std::string text(bytes_.substr(0, kind % 32));
    bytes_.remove_prefix(text.size());
    for (char& c : text) c = static_cast<char>(c & 0x7F);
    return text;
  }
  std::string Rest() {
    std::string rest(bytes_);
    bytes_ = {};
    return rest;
  }

 private:
  std::string_view bytes_;
};

void FillMessage(ByteSource& source, google::protobuf::Message* message, int depth = 0);

// One more value of the field, or its value.
inline void FillField(ByteSource& source,
                      const google::protobuf::FieldDescriptor* field,
                      google::protobuf::Message* message,
                      int depth) {
  using Field = google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& r = *message->GetReflection();
  const bool list = field->is_repeated();
  const auto put = [&](auto set, auto add, auto value) {
    list ? (r.*add)(message, field, value) : (r.*set)(message, field, value);
  };
  using R = google::protobuf::Reflection;
  switch (field->cpp_type()) {
    case Field::CPPTYPE_INT32:
      return put(&R::SetInt32, &R::AddInt32, static_cast<int32_t>(source.Integer()));
    case Field::CPPTYPE_INT64:
      return put(&R::SetInt64, &R::AddInt64, source.Integer());
    case Field::CPPTYPE_UINT32:
      return put(&R::SetUInt32, &R::AddUInt32, static_cast<uint32_t>(source.Integer()));
    case Field::CPPTYPE_UINT64:
      return put(&R::SetUInt64, &R::AddUInt64, static_cast<uint64_t>(source.Integer()));
    case Field::CPPTYPE_DOUBLE:
      return put(&R::SetDouble, &R::AddDouble, source.Number());
    case Field::CPPTYPE_FLOAT:
      return put(&R::SetFloat, &R::AddFloat, static_cast<float>(source.Number()));
    case Field::CPPTYPE_BOOL:
      return put(&R::SetBool, &R::AddBool, (source.Byte() & 1) != 0);
    case Field::CPPTYPE_ENUM:
      return put(&R::SetEnumValue, &R::AddEnumValue, static_cast<int>(source.Byte() % 16) - 2);
    case Field::CPPTYPE_STRING:
      return list ? r.AddString(message, field, source.Text())
                  : r.SetString(message, field, source.Text());
    case Field::CPPTYPE_MESSAGE:
      FillMessage(source, list ? r.AddMessage(message, field) : r.MutableMessage(message, field),
                  depth + 1);
  }
}

inline void FillMessage(ByteSource& source, google::protobuf::Message* message, int depth) {
  const google::protobuf::Descriptor& type = *message->GetDescriptor();
  if (type.field_count() == 0 || depth > 4) return;
  const int values = source.Byte() % 32;
  for (int i = 0; i < values && !source.empty(); ++i) {
    FillField(source, type.field(source.Byte() % type.field_count()), message, depth);
  }
}

template <typename Message>
Message Made(ByteSource& source) {
  Message message;
  FillMessage(source, &message);
  return message;
}

}  // namespace tandem::fuzz
