// SPDX-License-Identifier: MIT OR Apache-2.0

// One send, many receivers: go run sendgrp.go ADDRESS PORT...
//
// To be run in a control group that `onrush group serve --cgroup FOLDER` serves.
package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"syscall"
)

const soSetSendGrp = 0x4f01

func main() {
	address := netip.MustParseAddr(os.Args[1]).As4()
	var members []byte // an array of struct sockaddr_in
	var first *syscall.SockaddrInet4
	for _, word := range os.Args[2:] {
		port, err := strconv.Atoi(word)
		check(err)
		members = binary.NativeEndian.AppendUint16(members, syscall.AF_INET)
		members = binary.BigEndian.AppendUint16(members, uint16(port))
		members = append(append(members, address[:]...), make([]byte, 8)...)
		if first == nil {
			first = &syscall.SockaddrInet4{Port: port, Addr: address}
		}
	}
	group, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	check(err)
	check(syscall.SetsockoptString(group, syscall.SOL_SOCKET, soSetSendGrp, string(members)))
	// The address gives the packets their way. The socket is not connected to it: when a program that it
	// is connected to ends, a send fails, for all members.
	check(syscall.Sendto(group, []byte("one send, many receivers"), 0, first))
	fmt.Println(len(os.Args)-2, "members")
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
