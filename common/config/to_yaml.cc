#include <fmt/format.h>
#include <google/protobuf/message.h>
#include <yaml-cpp/yaml.h>

#include "common/config/config.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

void EmitMessage(const Message& message, YAML::Emitter* out);

// Entry `index` of a list, or the value itself for -1.
void EmitValue(const Message& m, const FieldDescriptor* f, int index, YAML::Emitter* out) {
  const Reflection& r = *m.GetReflection();
  const bool list = index >= 0;
  switch (f->cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return EmitMessage(list ? r.GetRepeatedMessage(m, f, index) : r.GetMessage(m, f), out);
    case FieldDescriptor::CPPTYPE_BOOL:
      *out << (list ? r.GetRepeatedBool(m, f, index) : r.GetBool(m, f));
      return;
    case FieldDescriptor::CPPTYPE_INT64:
      *out << (list ? r.GetRepeatedInt64(m, f, index) : r.GetInt64(m, f));
      return;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      // fmt's shortest text that reads back to the same number.
      *out << fmt::format("{}", list ? r.GetRepeatedDouble(m, f, index) : r.GetDouble(m, f));
      return;
    default: {
      const std::string text = list ? r.GetRepeatedString(m, f, index) : r.GetString(m, f);
      *out << YAML::DoubleQuoted << text;
    }
  }
}

void EmitMessage(const Message& message, YAML::Emitter* out) {
  *out << YAML::BeginMap;
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    *out << YAML::Key << field->name() << YAML::Value;
    if (!field->is_repeated()) {
      EmitValue(message, field, -1, out);
      continue;
    }
    *out << YAML::Flow << YAML::BeginSeq;
    const int size = message.GetReflection()->FieldSize(message, field);
    for (int k = 0; k < size; ++k) EmitValue(message, field, k, out);
    *out << YAML::EndSeq;
  }
  *out << YAML::EndMap;
}

}  // namespace

std::string ConfigToYaml(const v1::Config& config) {
  YAML::Emitter out;
  EmitMessage(config, &out);
  return std::string(out.c_str()) + "\n";
}

}  // namespace tandem
