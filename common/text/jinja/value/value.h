// Values of the template language: Python's, as far as templates can see them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json_fwd.hpp>

namespace tandem::jinja {

class Value;
class Object;
struct Runtime;
using Values = std::vector<Value>;

enum class Kind {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kSequence,
  kMapping,
  kIterator,
  kObject
};

// A missing variable or attribute: prints as nothing, is false and empty; any other use is an error
// with this message.
struct UndefinedValue {
  std::string message;
};

struct Sequence {
  // kGroup: the (grouper, list) tuple of the groupby filter.
  enum class Type { kList, kTuple, kGroup, kRange, kKeysView, kValuesView, kItemsView };
  Type type = Type::kList;
  Values items;
  int depth = 1;  // 1 for what holds no other list or mapping
};

// Keeps the order of insertion. Searched linearly: mappings in templates are small.
struct Mapping {
  std::vector<std::pair<Value, Value>> items;
  int depth = 1;  // as Sequence; known once it is a value

  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  void Set(const Value& key, Value value);
};

// What generators give: usable once, always true, without length or index.
struct Iterator {
  Values items;
  size_t next = 0;
  int depth = 1;  // as Sequence
};

// Immutable, except that iterators advance and namespaces are assigned to. Cheap to copy.
class Value {
 public:
  Value() : data_(nullptr) {}  // None
  static Value Undefined(std::string message);
  static Value None() { return Value(); }
  static Value Bool(bool b) { return Value(Data(b)); }
  static Value Int(int64_t i) { return Value(Data(i)); }
  static Value Float(double d) { return Value(Data(d)); }
  static Value String(std::string text);
  static Value List(Values items) { return Of(Sequence::Type::kList, std::move(items)); }
  static Value Tuple(Values items) { return Of(Sequence::Type::kTuple, std::move(items)); }
  static Value Of(Sequence::Type type, Values items);
  static Value Map(Mapping mapping);
  static Value Generator(Values items);
  static Value Of(std::shared_ptr<Object> object);

  // InvalidArgument for an integer beyond 64 bits, and for more than 200 levels of nesting.
  static absl::StatusOr<Value> FromJson(const nlohmann::ordered_json& json, int depth = 0);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is(Kind kind_) const { return kind() == kind_; }
  bool is_undefined() const { return is(Kind::kUndefined); }
  bool is_none() const { return is(Kind::kNone); }
  bool is_string() const { return is(Kind::kString); }
  bool is_int() const { return is(Kind::kInt); }
  bool is_number() const { return is(Kind::kBool) || is(Kind::kInt) || is(Kind::kFloat); }
  bool is_list() const { return is(Kind::kSequence) && sequence().type == Sequence::Type::kList; }
  bool is_tuple() const {
    return is(Kind::kSequence) &&
           (sequence().type == Sequence::Type::kTuple || sequence().type == Sequence::Type::kGroup);
  }

  // Each needs the kind that it names.
  const std::string& undefined_message() const {
    return std::get<std::shared_ptr<const UndefinedValue>>(data_)->message;
  }
  bool boolean() const { return std::get<bool>(data_); }
  int64_t integer() const { return std::get<int64_t>(data_); }
  double floating() const { return std::get<double>(data_); }
  const std::string& text() const { return *std::get<std::shared_ptr<const std::string>>(data_); }
  const Sequence& sequence() const { return *std::get<std::shared_ptr<const Sequence>>(data_); }
  const Mapping& mapping() const { return *std::get<std::shared_ptr<const Mapping>>(data_); }
  Iterator& iterator() const { return *std::get<std::shared_ptr<Iterator>>(data_); }
  Object& object() const { return *std::get<std::shared_ptr<Object>>(data_); }

  // Whether both are the same object (Python's `is`).
  bool IsSame(const Value& other) const { return data_ == other.data_; }

 private:
  // In the order of Kind.
  using Data = std::variant<std::shared_ptr<const UndefinedValue>,
                            std::nullptr_t,
                            bool,
                            int64_t,
                            double,
                            std::shared_ptr<const std::string>,
                            std::shared_ptr<const Sequence>,
                            std::shared_ptr<const Mapping>,
                            std::shared_ptr<Iterator>,
                            std::shared_ptr<Object>>;
  explicit Value(Data data) : data_(std::move(data)) {}
  Data data_;
};

// How many lists, mappings and generators lie in each other; objects count as none.
int DepthOf(const Value& value);

// Arguments of a call, filter or test.
struct Args {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Everything else: functions, macros, namespaces, loops.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string TypeName() const = 0;
  virtual std::optional<Value> GetAttribute(const std::string&) { return std::nullopt; }
  // InvalidArgument unless the object is a namespace.
  virtual absl::Status SetAttribute(const std::string& name, Value value);
  virtual bool is_callable() const { return false; }
  virtual absl::StatusOr<Value> Call(Runtime& runtime, const Args& args);
  virtual std::string Print() const { return "<" + TypeName() + ">"; }
  // At the end of a rendering: forgets the values that it was given after it was made.
  virtual void LetGo() {}
};

// Arguments put into the parameters of a built-in. Parameters in order; absent ones are null.
class Bound {
 public:
  explicit Bound(std::vector<std::optional<Value>> values) : values_(std::move(values)) {}

  const Value* operator[](size_t i) const { return values_[i] ? &*values_[i] : nullptr; }
  Value Or(size_t i, Value fallback) const { return values_[i].value_or(std::move(fallback)); }
  bool Flag(size_t i, bool fallback) const;
  // InvalidArgument if given and not an integer.
  absl::StatusOr<int64_t> Int(size_t i, int64_t fallback) const;
  // InvalidArgument if given and not a string.
  absl::StatusOr<std::string> Text(size_t i, const std::string& fallback) const;

 private:
  std::vector<std::optional<Value>> values_;
};

// InvalidArgument: too many, unknown, doubled, or fewer than `required`. `function` is for
// messages.
absl::StatusOr<Bound> Bind(const std::string& function,
                           const Args& args,
                           const std::vector<std::string>& names,
                           size_t required = 0);

}  // namespace tandem::jinja
