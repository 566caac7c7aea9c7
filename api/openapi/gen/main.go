// Gen writes the OpenAPI document of the API, the page of the reference that shows
// it, or the options of an SDK. It reads a FileDescriptorSet with comments. With -values it
// reads nothing, and writes the types of closed sets of values.
//
//	protoc --include_imports --include_source_info --descriptor_set_out=/dev/stdout … |
//	    go run ./api/openapi/gen [-page | -sdk LANGUAGE | -values LANGUAGE]
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

func main() {
	page := flag.Bool("page", false, "write the page of the reference")
	sdk := flag.String("sdk", "", "write the options of the SDK for a language: python or typescript; or their page of the reference: page")
	values := flag.String("values", "", "write the types of closed sets of values for a language: python or typescript")
	flag.Parse()
	if *values != "" {
		writeValues(os.Stdout, *values == "python")
		return
	}
	if err := run(os.Stdin, os.Stdout, *page, *sdk); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(r io.Reader, w io.Writer, page bool, sdk string) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(data, &set); err != nil {
		return fmt.Errorf("read the descriptors: %w", err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return fmt.Errorf("read the descriptors: %w", err)
	}
	var ours []protoreflect.FileDescriptor
	for _, f := range set.File { // in the order of the command line, after what they import
		d, err := files.FindFileByPath(f.GetName())
		if err != nil {
			return err
		}
		if d.Package() == "caisson.v1" {
			ours = append(ours, d)
		}
	}
	switch {
	case sdk == "page":
		return writeOptions(w, ours)
	case sdk != "":
		return writeSDK(w, ours, sdk)
	case page:
		return writePage(w, ours)
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	return encoder.Encode(documentOf(ours))
}
