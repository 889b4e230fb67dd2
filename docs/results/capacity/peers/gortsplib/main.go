// gortsplib, the library that MediaMTX is made of, as a peer: one live stream, given to every reader.
//
// usage: gortsplib ADDRESS:PORT FILE
//
// Plays the transport stream FILE for ever at rtsp://ADDRESS:PORT/anything, seven transport packets to
// one of RTP (RFC 2250), each when it is due by the file's constant rate (4 Mbit/s). All readers share the
// stream, as those of MediaMTX do; a stored stream for each reader would cost no less.
package main

import (
	"log"
	"os"
	"time"

	"github.com/bluenviron/gortsplib/v4"
	"github.com/bluenviron/gortsplib/v4/pkg/base"
	"github.com/bluenviron/gortsplib/v4/pkg/description"
	"github.com/bluenviron/gortsplib/v4/pkg/format"
	"github.com/pion/rtp"
)

const (
	payloadBytes = 7 * 188
	bitsASecond  = 4_000_000
)

type handler struct {
	stream *gortsplib.ServerStream
}

func (h *handler) OnDescribe(*gortsplib.ServerHandlerOnDescribeCtx) (*base.Response, *gortsplib.ServerStream, error) {
	return &base.Response{StatusCode: base.StatusOK}, h.stream, nil
}

func (h *handler) OnSetup(*gortsplib.ServerHandlerOnSetupCtx) (*base.Response, *gortsplib.ServerStream, error) {
	return &base.Response{StatusCode: base.StatusOK}, h.stream, nil
}

func (h *handler) OnPlay(*gortsplib.ServerHandlerOnPlayCtx) (*base.Response, error) {
	return &base.Response{StatusCode: base.StatusOK}, nil
}

// Pauses are wanted by the load generator when a stream is over; this one never is.
func (h *handler) OnPause(*gortsplib.ServerHandlerOnPauseCtx) (*base.Response, error) {
	return &base.Response{StatusCode: base.StatusOK}, nil
}

func main() {
	film, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	media := &description.Media{Type: description.MediaTypeVideo, Formats: []format.Format{&format.MPEGTS{}}}
	handler := &handler{}
	server := &gortsplib.Server{
		Handler:        handler,
		RTSPAddress:    os.Args[1],
		UDPRTPAddress:  ":8000",
		UDPRTCPAddress: ":8001",
	}
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	handler.stream = gortsplib.NewServerStream(server, &description.Session{Medias: []*description.Media{media}})
	begin := time.Now()
	for packet := 0; ; packet++ {
		// Whole packets of seven; what is left at the end of the film is left out.
		at := packet % (len(film) / payloadBytes) * payloadBytes
		due := time.Duration(packet) * (payloadBytes * 8 * time.Second / bitsASecond)
		time.Sleep(time.Until(begin.Add(due)))
		err := handler.stream.WritePacketRTP(media, &rtp.Packet{
			Header: rtp.Header{
				Version:        2,
				PayloadType:    33,
				SequenceNumber: uint16(packet),
				Timestamp:      uint32(due * 90_000 / time.Second),
				SSRC:           7,
			},
			Payload: film[at : at+payloadBytes],
		})
		if err != nil {
			log.Print(err)
		}
	}
}
