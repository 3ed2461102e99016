package s3conf

import (
	"context"
	"crypto/md5" //nolint:gosec // S3 checks the transport of the key by it, nothing more
	"encoding/base64"
	"net/http"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

const acceptEncoding = "Accept-Encoding"

// ofObjects are the operations that read an object, and so need its key.
var ofObjects = map[string]bool{"GetObject": true, "HeadObject": true, "GetObjectAttributes": true}

// headers are what Options add to a request of an operation.
func (o Options) headers(operation string) http.Header {
	h := http.Header{}
	if o.RequesterPays {
		h.Set("X-Amz-Request-Payer", "requester")
	}
	if o.BucketOwner != "" {
		h.Set("X-Amz-Expected-Bucket-Owner", o.BucketOwner)
	}
	if o.CustomerKey != "" && ofObjects[operation] {
		sum := md5.Sum([]byte(o.CustomerKey)) //nolint:gosec // see the import
		h.Set("X-Amz-Server-Side-Encryption-Customer-Algorithm", "AES256")
		h.Set("X-Amz-Server-Side-Encryption-Customer-Key", base64.StdEncoding.EncodeToString([]byte(o.CustomerKey)))
		h.Set("X-Amz-Server-Side-Encryption-Customer-Key-Md5", base64.StdEncoding.EncodeToString(sum[:]))
	}
	return h
}

// addHeaders makes the SDK send them, before it signs.
func (o Options) addHeaders(stack *middleware.Stack) error {
	step := middleware.BuildMiddlewareFunc("PilotlightHeaders", func(ctx context.Context, in middleware.BuildInput, next middleware.BuildHandler) (middleware.BuildOutput, middleware.Metadata, error) {
		if req, ok := in.Request.(*smithyhttp.Request); ok {
			for name, values := range o.headers(awsmiddleware.GetOperationName(ctx)) {
				req.Header[name] = values
			}
		}
		return next.HandleBuild(ctx, in)
	})
	return stack.Build.Add(step, middleware.After) // names the step
}

// leaveEncodingUnsigned takes Accept-Encoding away while a request is signed.
func leaveEncodingUnsigned(stack *middleware.Stack) error {
	const signing = "Signing"
	if _, ok := stack.Finalize.Get(signing); !ok {
		return nil // nothing is signed
	}
	hide := middleware.FinalizeMiddlewareFunc("PilotlightHideEncoding", func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
		if req, ok := in.Request.(*smithyhttp.Request); ok {
			req.Header.Del(acceptEncoding)
		}
		return next.HandleFinalize(ctx, in)
	})
	show := middleware.FinalizeMiddlewareFunc("PilotlightShowEncoding", func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
		if req, ok := in.Request.(*smithyhttp.Request); ok {
			req.Header.Set(acceptEncoding, "identity")
		}
		return next.HandleFinalize(ctx, in)
	})
	if err := stack.Finalize.Insert(hide, signing, middleware.Before); err != nil {
		return err // names the step
	}
	return stack.Finalize.Insert(show, signing, middleware.After) // as above
}
