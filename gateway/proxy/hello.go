package proxy

import (
	"errors"

	"golang.org/x/crypto/cryptobyte"
)

// Numbers of TLS (RFC 8446, 4 and 5.1; RFC 6066, 3).
const (
	recordHandshake     = 22
	messageClientHello  = 1
	extensionServerName = 0
	extensionECH        = 0xfe0d // encrypted_client_hello (RFC 9849)
	nameTypeHost        = 0
)

var errHello = errors.New("the TLS hello is malformed")

// checkNameList refuses a hello whose list of server names is anything but one host
// name. crypto/tls skips names of other types, and servers differ in which entry of a
// longer list they take.
func checkNameList(said []byte) error {
	return eachExtension(said, func(kind uint16, body cryptobyte.String) error {
		if kind != extensionServerName {
			return nil
		}
		var nameType uint8
		var names, name cryptobyte.String
		if !body.ReadUint16LengthPrefixed(&names) || !body.Empty() || !names.ReadUint8(&nameType) {
			return errHello
		}
		if nameType != nameTypeHost || !names.ReadUint16LengthPrefixed(&name) || !names.Empty() {
			return errors.New("the TLS hello has a list of server names that is not one host name (RFC 6066, 3)")
		}
		return nil
	})
}

// hidesName reports whether the hello with which said begins has encrypted_client_hello.
// GREASE has it too, and looks the same to all but the server.
func hidesName(said []byte) (found bool, err error) {
	err = eachExtension(said, func(kind uint16, _ cryptobyte.String) error {
		found = found || kind == extensionECH
		return nil
	})
	return found, err
}

// eachExtension calls f for each extension of the ClientHello with which said begins.
func eachExtension(said []byte, f func(kind uint16, body cryptobyte.String) error) error {
	extensions, err := helloExtensions(said)
	if err != nil {
		return err
	}
	for !extensions.Empty() {
		var kind uint16
		var body cryptobyte.String
		if !extensions.ReadUint16(&kind) || !extensions.ReadUint16LengthPrefixed(&body) {
			return errHello
		}
		if err := f(kind, body); err != nil {
			return err
		}
	}
	return nil
}

// helloExtensions are those of the ClientHello with which said begins.
func helloExtensions(said []byte) (extensions cryptobyte.String, err error) {
	records := cryptobyte.String(said)
	var message []byte
	for whole := false; !whole; { // a message may be split into records
		var kind uint8
		var fragment cryptobyte.String
		if !records.ReadUint8(&kind) || kind != recordHandshake || !records.Skip(2) || !records.ReadUint16LengthPrefixed(&fragment) {
			return nil, errHello
		}
		message = append(message, fragment...)
		var length uint32
		head := cryptobyte.String(message)
		whole = head.Skip(1) && head.ReadUint24(&length) && len(head) >= int(length)
	}
	all := cryptobyte.String(message)
	var kind uint8
	var hello, session, suites, compressions cryptobyte.String
	if !all.ReadUint8(&kind) || kind != messageClientHello || !all.ReadUint24LengthPrefixed(&hello) ||
		!hello.Skip(2+32) || // version and random
		!hello.ReadUint8LengthPrefixed(&session) || !hello.ReadUint16LengthPrefixed(&suites) || !hello.ReadUint8LengthPrefixed(&compressions) ||
		!hello.ReadUint16LengthPrefixed(&extensions) || !hello.Empty() {
		return nil, errHello
	}
	return extensions, nil
}
